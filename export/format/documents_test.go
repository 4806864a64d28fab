package format

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"captureproxy/export"
	"captureproxy/internal/record"
)

var update = flag.Bool("update", false, "write testdata/rollouts anew")

// TestDocuments keeps the documents that check_loaders.sh exports to what the tests here say of them.
func TestDocuments(t *testing.T) {
	docs := map[string]*export.Rollout{"tangled": tangled("tangled", "", ptr(1.0)).build(record.SharedEvery)}
	for i := range 8 {
		reward := float64(i%3) / 2
		id := fmt.Sprint("group-", i)
		c := newCapture(id, "g8", &reward)
		if i == 0 {
			c = tangled(id, "g8", &reward)
		} else {
			c.next(c.turn(raw(`{"role":"system","content":"You fix code."}`, `{"role":"user","content":"fix it"}`), []int32{1, 2, 3}, 10, 11), []int32{20}, 12)
		}
		c.sess.Spec.Group.Size = ptr(8)
		docs[id] = c.build(record.SharedEvery)
	}
	for _, r := range examples(t) {
		docs["example-"+r.SessionID] = r
	}
	for name, r := range docs {
		path := filepath.Join("testdata/rollouts", name+".json")
		var b bytes.Buffer
		if _, err := r.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		have, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(have, b.Bytes()) {
			t.Errorf("%s is not what this test makes; go test -update writes it: %v", path, err)
		}
	}
}
