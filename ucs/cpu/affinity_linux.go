package cpu

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
)

// cpuSetSize is the number of processors in an affinity mask of x/sys.
const cpuSetSize = 8 * 128

// Affinity returns the processors that the calling thread of the operating system may run
// on, in ascending order.
func Affinity() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("affinity: %w", err)
	}
	list := make([]int, 0, set.Count())
	for c := range cpuSetSize {
		if set.IsSet(c) {
			list = append(list, c)
		}
	}
	return list, nil
}

// SetProcessAffinity binds all threads of the process to the processors. Threads that they
// create later inherit it. Unlike SetAffinity, it needs no locked goroutine.
//
// Errors: as for SetAffinity.
func SetProcessAffinity(cpus []int) error {
	// A thread that is created during the loop appears in the next listing.
	done := map[string]bool{}
	for {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("set affinity of the process: %w", err)
		}
		found := false
		for _, t := range tasks {
			if done[t.Name()] {
				continue
			}
			done[t.Name()], found = true, true
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				return fmt.Errorf("set affinity of the process: %w", err)
			}
			if err := setAffinity(id, cpus); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
		if !found {
			return nil
		}
	}
}

// SetAffinity binds the calling thread of the operating system to the processors. Threads
// that it creates later inherit it; existing threads do not. The caller must lock its
// goroutine to the thread first, and keep it locked.
//
// Errors: ucs.ErrInvalid for an empty list or a number that does not fit into a mask;
// EINVAL if none of the processors may be used.
func SetAffinity(cpus []int) error { return setAffinity(0, cpus) }

func setAffinity(thread int, cpus []int) error {
	var set unix.CPUSet
	for _, c := range cpus {
		if c < 0 || c >= cpuSetSize {
			return fmt.Errorf("set affinity: processor %d: %w", c, ucs.ErrInvalid)
		}
		set.Set(c)
	}
	if len(cpus) == 0 {
		return fmt.Errorf("set affinity to no processor: %w", ucs.ErrInvalid)
	}
	if err := unix.SchedSetaffinity(thread, &set); err != nil {
		return fmt.Errorf("set affinity to %s: %w", FormatList(cpus), err)
	}
	return nil
}
