//go:build linux

package test

import "fmt"

// scanLine reads the words of a line.
func scanLine(s string, into ...any) error {
	if _, err := fmt.Sscan(s, into...); err != nil {
		return fmt.Errorf("line %q: %w", s, err)
	}
	return nil
}

// orderError: a message out of its sender's order, lost or double.
type orderError struct{ got, want uint64 }

func (e *orderError) Error() string { return fmt.Sprintf("message %d where %d was due", e.got, e.want) }
