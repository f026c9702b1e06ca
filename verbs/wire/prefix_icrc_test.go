package wire

// ICRC computes the checksum of a packet; covered reaches from the BTH to the padding.
func (p Prefix) ICRC(covered []byte, id uint16) uint32 {
	return p.Start(covered, len(covered)+ICRCLen, id)
}
