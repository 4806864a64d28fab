package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// What Linux tells about a process. Elsewhere there is no /proc, and the bench says so.

// clockTick is what /proc counts processor time in: USER_HZ, 100 on every platform that Go runs on.
const clockTick = 10_000 // microseconds

// cpu is the processor time of a process, user and system, in microseconds.
func cpu(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("processor time is read from /proc, which this system has not: %w", err)
	}
	_, rest, found := strings.Cut(string(text), ") ") // the name before it may hold anything
	fields := strings.Fields(rest)
	if !found || len(fields) < 13 {
		return 0, errors.New("/proc/PID/stat is not what Linux writes")
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return float64(user+system) * clockTick, errors.Join(err1, err2)
}

// loadAverage is how many threads wanted to run, over the last 1, 5 and 15 minutes.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

// spareDescriptors is what a process opens beside its connections, generously.
const spareDescriptors = 64

// raiseDescriptors lets this process and those that it starts open as many files as they need, if the system allows it, and
// returns how many they may.
func raiseDescriptors(need uint64) (uint64, error) {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0, fmt.Errorf("asking how many files may be open: %w", err)
	}
	want := syscall.Rlimit{Cur: max(r.Max, need), Max: max(r.Max, need)}
	if r.Max < need && syscall.Setrlimit(syscall.RLIMIT_NOFILE, &want) == nil { // only a privileged process may
		return want.Max, nil
	}
	return r.Max, nil // Go has raised the soft limit already
}

// forgetPeak makes the peak of a process's memory what it takes now.
func forgetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// memory is what a process has in memory now and had at most, in MiB.
func memory(pid int) (now, peak float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if name != "VmRSS" && name != "VmHWM" {
			continue
		}
		kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		if err != nil {
			return 0, 0, err
		}
		if name == "VmRSS" {
			now = kib / 1024
		} else {
			peak = kib / 1024
		}
	}
	return now, peak, nil
}

// processor is the machine's own name for what computes in it.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

// sums adds up the samples of metrics by their names, over all labels.
func (p *capture) sums(ctx context.Context, names ...string) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	sums := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		name, rest, labelled := strings.Cut(strings.TrimSpace(line), "{")
		if labelled {
			_, rest, _ = strings.Cut(rest, "} ")
		} else {
			name, rest, _ = strings.Cut(name, " ")
		}
		if !slices.Contains(names, name) {
			continue
		}
		v, err := strconv.ParseFloat(rest, 64)
		if err != nil {
			return nil, fmt.Errorf("the proxy's metrics say %q: %w", line, err)
		}
		sums[name] += v
	}
	return sums, nil
}
