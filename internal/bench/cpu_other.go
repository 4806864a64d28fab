//go:build !linux

package bench

// finecpu is the processor time of a process in seconds.
func finecpu(pid int) (float64, error) {
	us, err := cpu(pid)
	return us / 1e6, err
}
