package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"captureproxy/store"
)

// The version of the weights that are live is a fact of the store: it survives the process.
func TestPolicySurvives(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, store.Options{})
	if v, err := l.Policy(ctx); v != nil || err != nil {
		t.Fatalf("before anybody said: %v, %v", v, err)
	}
	for _, v := range []int64{5, -1, 8} {
		if err := l.SetPolicy(ctx, v); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.SetPolicy(ctx, 9); err == nil {
		t.Error("a closed store took a version")
	}
	l = open(t, dir, store.Options{})
	if v, err := l.Policy(ctx); err != nil || v == nil || *v != 8 {
		t.Fatalf("after a restart: %v, %v", v, err)
	}
	for _, text := range []string{"", "8", `{"version":null}`, `{"version":"8"}`} {
		if err := os.WriteFile(filepath.Join(dir, "policy.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if v, err := l.Policy(ctx); v != nil || err == nil || !strings.Contains(err.Error(), "policy.json") {
			t.Errorf("%q: %v, %v", text, v, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, ".policy*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
