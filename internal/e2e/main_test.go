//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// binary is the program under test: what E2E_BINARY names, or else built once for all tests.
var binary string

func TestMain(m *testing.M) {
	binary = os.Getenv("E2E_BINARY")
	if binary != "" {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "capture-proxy-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "capture-proxy")
	code := 1
	build := exec.Command("go", "build", "-o", binary, "captureproxy/cmd/capture-proxy")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir) //nolint:errcheck // a leftover in the temporary folder fails nothing
	os.Exit(code)
}

// installed returns what ./test has installed into its cache folder.
func installed(t *testing.T, elem ...string) string {
	t.Helper()
	cache := os.Getenv("E2E_CACHE")
	if cache == "" {
		t.Fatal("E2E_CACHE does not say where the agents and SDKs are: run these tests with ./test e2e")
	}
	path := filepath.Join(append([]string{cache}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: ./test e2e installs it", err)
	}
	return path
}
