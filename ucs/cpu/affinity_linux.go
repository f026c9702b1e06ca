package cpu

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
)

// setSize is how many processors an affinity mask of x/sys holds.
const setSize = 8 * 128

// Affinity lists the processors that the calling operating-system thread may
// run on, ascending.
func Affinity() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("affinity: %w", err)
	}
	list := make([]int, 0, set.Count())
	for c := range setSize {
		if set.IsSet(c) {
			list = append(list, c)
		}
	}
	return list, nil
}

// SetProcessAffinity binds all threads of the process, and those that they make
// later, to the processors. Unlike SetAffinity it needs no locked goroutine.
//
// Errors: as SetAffinity.
func SetProcessAffinity(cpus []int) error {
	// A thread that another makes meanwhile is in the next listing.
	done := map[string]bool{}
	for {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("set affinity of the process: %w", err)
		}
		fresh := false
		for _, t := range tasks {
			if done[t.Name()] {
				continue
			}
			done[t.Name()], fresh = true, true
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				return fmt.Errorf("set affinity of the process: %w", err)
			}
			if err := setAffinity(id, cpus); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
		if !fresh {
			return nil
		}
	}
}

// SetAffinity binds the calling operating-system thread to the processors.
// Threads made by it later inherit that, those that exist do not: lock the
// goroutine to its thread before, and do not unlock it.
//
// Errors: ucs.ErrInvalid for an empty list or a number that no mask holds;
// EINVAL when none of them may be used.
func SetAffinity(cpus []int) error { return setAffinity(0, cpus) }

func setAffinity(thread int, cpus []int) error {
	var set unix.CPUSet
	for _, c := range cpus {
		if c < 0 || c >= setSize {
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
