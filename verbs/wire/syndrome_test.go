package wire

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestRNRTimer(t *testing.T) {
	for code, ms := range []float64{
		655.36, .01, .02, .03, .04, .06, .08, .12, .16, .24, .32, .48, .64, .96, 1.28, 1.92, 2.56, 3.84, 5.12, 7.68,
		10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52,
	} {
		assert.InDelta(t, ms*float64(time.Millisecond), float64(RNRTimer(uint8(code))), 0.5, "code %d", code)
		assert.Equal(t, uint8(code), RNR(uint8(code)).Code())
		assert.True(t, RNR(uint8(code)).IsRNR())
	}
	assert.Equal(t, RNR(1), RNR(33), "a code has five bits")
}

func TestSyndromeKinds(t *testing.T) {
	for v := range 256 {
		s := Syndrome(v)
		want := [3]bool{v < 0x20, v >= 0x20 && v < 0x40, v >= 0x60 && v < 0x80}
		assert.Equal(t, want, [3]bool{s.IsAck(), s.IsRNR(), s.IsNak()}, "%#x", v)
	}
	for _, s := range []Syndrome{NakSequence, NakInvalid, NakRemoteAccess, NakRemoteOp, NakInvalidRD} {
		assert.True(t, s.IsNak(), "%#x", uint8(s))
	}
}
