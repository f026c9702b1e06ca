package soft

// addFast adds the next fast-path messages to t, as far as t and the window allow and
// until t has most packets. It returns false if it added none.
//
//hot:bench BenchmarkSmallStream
func (q *qp) addFast(t *segmentBatch, most int) bool {
	r := &q.req
	if !t.gso {
		return false
	}
	open := shortPackets*r.window.cur - r.psn.Diff(r.una)
	n, bytes := 0, uint64(0)
	for end := q.sq.end(); r.tx != end && n < open && t.count < most; n++ {
		w := q.sq.at(r.tx)
		if !w.isFast() {
			break
		}
		size := w.fastLen()
		if !t.reserve(size) {
			break
		}
		q.putFast(w, t.buf[t.pos:t.pos+maxFastPacket], n+1 == open)
		q.txICRC.Seal(t.peer.prefix, t.buf[t.pos:t.pos+size], uint16(t.count))
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
	q.updateSndMax()
	q.count(cntTxPackets, uint64(n))
	q.count(cntTxBytes, bytes)
	return true
}
