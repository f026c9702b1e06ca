package ring

// flagMark is the bit of a cell's first word that tells a marker from messages.
const flagMark = 1 << 57

// Mark publishes a marker behind the last message: the sender goes on elsewhere,
// and next says where. It always finds a cell, since one is kept for it. The ring
// is not sent in any more.
func (p *Producer) Mark(next uint64) {
	c := p.Cell()
	c.SetHeader(next)
	c.Publish(First(p.head, 0, 0) | flagMark)
	p.head++
	p.Block()
}

// Mark reads the marker in the next cell, whose first word Poll gave. ok is false
// where it holds none.
func (c *Consumer) Mark(first uint64) (next uint64, ok bool) {
	if first&flagMark == 0 {
		return 0, false
	}
	return c.Header(), true
}

// Taken is how many messages were taken so far.
func (c *Consumer) Taken() uint64 { return c.want - 1 }
