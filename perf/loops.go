package perf

// burster is a stream that sends its messages in bursts, so that the clock is read between them.
// The loops in burst and each are the measured ones.
type burster interface {
	// burst sends n messages.
	burst(n int) error
	// each sends n messages and stamps each of them.
	each(n int, st *stamps) error
}

// stream sends n messages; it stamps each one or every streamStride-th one.
func stream(b burster, n int64, st *stamps, l *link) error {
	for n > 0 {
		c := int(min(n, streamStride))
		switch {
		case st.every == 1:
			if err := b.each(c, st); err != nil {
				return err
			}
		default:
			if err := b.burst(c); err != nil {
				return err
			}
			if c == streamStride {
				st.tick()
			}
		}
		n -= int64(c)
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

// eachOf stamps every message of a burster without a loop for that.
func eachOf(b interface{ burst(n int) error }, n int, st *stamps) error {
	for range n {
		if err := b.burst(1); err != nil {
			return err
		}
		st.tickEach()
	}
	return nil
}

// fill writes the pattern of message i, which check verifies.
func fill(b []byte, i int64) {
	for j := range b {
		b[j] = byte(i) + byte(j)
	}
}

// check returns the offset of the first byte of b that differs from the pattern of message i, or
// -1.
func check(b []byte, i int64) int {
	for j, v := range b {
		if v != byte(i)+byte(j) {
			return j
		}
	}
	return -1
}
