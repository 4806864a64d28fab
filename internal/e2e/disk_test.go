//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"captureproxy/internal/record"
)

// ready asks GET /ready.
func ready(t *testing.T, p *proxy) (status int, body string) {
	t.Helper()
	resp, err := http.Get(p.url + "/ready")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// smallDisk mounts a disk of a few megabytes.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Fatalf("mounting a small disk, which takes root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestDiskFull fills the proxy's disk under it, and makes room again: every answer reaches its client whole, /ready says what is
// wrong, the session says that something is missing, and nothing that was recorded is lost or false.
func TestDiskFull(t *testing.T) {
	dir := smallDisk(t)
	p := serve(t, "--upstream", fakeEngine(t), "--data", filepath.Join(dir, "data"))
	whole, hurt := p.session(t), p.session(t)
	ask := func(session string, n int) {
		t.Helper()
		// A long question, so that a full disk has no room for it in what was set aside before.
		question := fmt.Sprintf("question %d %s", n, strings.Repeat(fmt.Sprintf("%x ", n*7919), 20000))
		answer, err := streamed(p.url, session, question)
		if err != nil || answer == "" {
			t.Errorf("call %d: %q %v", n, answer, err)
		}
	}
	for n := range 3 {
		ask(whole, n)
	}
	if status, body := ready(t, p); status != http.StatusOK {
		t.Fatalf("not ready before: %s", body)
	}
	if err := fill(dir); err != nil {
		t.Fatal(err)
	}
	const lost = 60
	for n := range lost {
		ask(hurt, n)
	}
	status, body := ready(t, p)
	if status != http.StatusServiceUnavailable || body == "" {
		t.Errorf("/ready: %d %s", status, body)
	}
	doc := p.rollout(t, hurt)
	if doc.Trainable || !strings.Contains(fmt.Sprint(doc.Validation), "capture_failed") || len(doc.Turns) >= lost {
		t.Errorf("%d turns, trainable %v: %v", len(doc.Turns), doc.Trainable, doc.Validation)
	}
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); status != http.StatusOK; status, body = ready(t, p) {
		if time.Now().After(deadline) {
			t.Fatalf("not ready again: %s", body)
		}
		ask(whole, 3)
		time.Sleep(100 * time.Millisecond)
	}
	doc = p.close(t, whole)
	if doc.Status != record.Completed || !doc.Trainable || len(doc.Turns) < 3 {
		t.Errorf("the session from before: %s, trainable %v, %d turns: %v", doc.Status, doc.Trainable, len(doc.Turns), doc.Validation)
	}
}

// TestReadOnlyDisk starts a proxy where it cannot write: it says so and ends, rather than to serve without a record. What is
// on the disk can be read as before.
func TestReadOnlyDisk(t *testing.T) {
	dir := smallDisk(t)
	data, engine := filepath.Join(dir, "data"), fakeEngine(t)
	p := serve(t, "--upstream", engine, "--data", data)
	session := p.session(t)
	if _, err := streamed(p.url, session, "a question"); err != nil {
		t.Fatal(err)
	}
	p.stop(t)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, "size=24m"); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), binary, "serve", "--listen", "127.0.0.1:0", "--upstream", engine, "--data", data).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "read-only") {
		t.Errorf("%v: %s", err, out)
	}
}

// fill leaves no room on a disk.
func fill(dir string) error {
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 4096)
	for {
		if _, err := f.Write(block); err != nil {
			return nil // that is what it is for
		}
	}
}
