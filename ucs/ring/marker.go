package ring

// flagMark is the bit of a cell's first word that distinguishes a switch-over marker.
const flagMark = 1 << 57

// Mark publishes a switch-over marker behind the last message: the producer continues in
// the ring that next identifies. One cell is reserved for it, so Mark never fails. Mark
// blocks the ring, which must not be sent in any more.
func (p *Producer) Mark(next uint64) {
	c := p.Cell()
	c.SetHeader(next)
	c.Publish(First(p.head, 0, 0) | flagMark)
	p.head++
	p.Block()
}

// Mark returns the value of the switch-over marker in the next cell; first is the first
// word that Poll returned. ok is false if the cell holds no marker.
func (c *Consumer) Mark(first uint64) (next uint64, ok bool) {
	if first&flagMark == 0 {
		return 0, false
	}
	return c.Header(), true
}

// Consumed returns the number of messages consumed so far.
func (c *Consumer) Consumed() uint64 { return c.want - 1 }
