package nic

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/goucx/goucx/verbs"
)

// softContext is a soft device of which only the name is read.
type softContext struct{ verbs.Context }

func (softContext) Info() verbs.DeviceInfo { return verbs.DeviceInfo{Provider: "soft"} }

// The source port of a datagram must be that of the address. LID 0 is port 4791. Hardware sends
// from any port that a soft device reports as LID 0.
func TestSentFromPort(t *testing.T) {
	d := &Domain{ctx: softContext{}}
	for _, c := range []struct {
		slid, lid uint16
		goucx     bool
		want      bool
	}{
		{0x8123, 0x8123, true, true},
		{0x8124, 0x8123, true, false},
		{4791, 0, true, true},
		{4791, 4791, true, true},
		{0x8123, 0, true, false},
		{0, 0xc001, true, true},
		{0, 0x8123, true, false},
		{0, 0, true, false},
		{0, 0, false, true},
		{0x8123, 0, false, false},
		{0, 0x8123, false, false},
	} {
		a := Address{QPN: 7, Port: PortAddress{LID: c.lid, Goucx: c.goucx}}
		wc := verbs.WC{SrcQP: 7, SLID: c.slid}
		assert.Equal(t, c.want, d.SentFrom(&a, &wc, nil), "%+v", c)
		wc.SrcQP++
		assert.False(t, d.SentFrom(&a, &wc, nil), "another queue pair")
	}
}
