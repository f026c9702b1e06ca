package soft

// addShorts adds the next fast-path messages to t, as far as t and the window allow and
// until t has most packets. It returns false if it added none.
//
// hot: BenchmarkSmallStream.
func (q *qp) addShorts(t *train, most int) bool {
	r := &q.req
	if !t.whole {
		return false
	}
	open := shortPackets*r.window.now - r.psn.Diff(r.una)
	n, bytes := 0, uint64(0)
	for end := q.sq.end(); r.tx != end && n < open && t.count < most; n++ {
		w := q.sq.at(r.tx)
		if !w.short() {
			break
		}
		size := w.shortLen()
		if !t.fits(size) {
			break
		}
		q.putShort(w, t.buf[t.pos:t.pos+maxShort], n+1 == open)
		q.sealed.Seal(t.to.tx, t.buf[t.pos:t.pos+size], uint16(t.count))
		t.pos += size
		t.total += size
		t.count++
		bytes += uint64(w.n)
		r.tx++
	}
	if n == 0 {
		return false
	}
	r.psn = r.psn.Add(n)
	q.reached()
	q.count(cntTxPackets, uint64(n))
	q.count(cntTxBytes, bytes)
	return true
}
