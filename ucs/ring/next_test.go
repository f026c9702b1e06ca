package ring

// Message describes a received message. Its payload is Data()[Off:Off+Len].
type Message struct {
	Header   uint64
	Off, Len uint32
	ID       uint8
}

// Next stores the next message in m and advances. more is false if the ring is empty. ok
// is false if the cell holds garbage; the ring must not be used any more. The payload
// stays valid until Release.
func (c *Consumer) Next(m *Message) (more, ok bool) {
	first, more := c.Poll()
	if !more {
		return false, true
	}
	m.Header, m.ID = c.Header(), ID(first)
	if m.Off, m.Len, ok = c.Inline(first); !ok {
		if m.Off, m.Len, ok = c.Bulk(first); !ok {
			return false, false
		}
	}
	c.Advance()
	return true, true
}
