package bench

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// finecpu is the processor time of a process in seconds, to the nanosecond: the kernel's clock of the process, see
// clock_getcpuclockid(3).
func finecpu(pid int) (float64, error) {
	const ofProcess = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|ofProcess, &t); err != nil {
		return 0, fmt.Errorf("the processor time of process %d: %w", pid, err)
	}
	return float64(t.Nano()) / 1e9, nil
}
