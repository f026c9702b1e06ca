package wireup

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestQuantityRoundTrip(t *testing.T) {
	for q := range 256 {
		assert.Equal(t, Quantity(q), Quantize(Quantity(q).Float(1), 1), "quantity %d", q)
		if q > 0 {
			assert.Greater(t, Quantity(q).Float(1), Quantity(q-1).Float(1), "quantity %d", q)
		}
	}
}

func TestQuantityPrecision(t *testing.T) {
	for x := 1.0; x < 2e9; x *= 1.01 {
		got := Quantize(x*megabyte, megabyte).Float(megabyte)
		assert.InEpsilon(t, x*megabyte, got, 1.0/16, "%g", x)
	}
}

func TestQuantityEdges(t *testing.T) {
	for _, c := range []struct {
		name string
		x    float64
		want float64
	}{
		{"zero", 0, 0},
		{"negative", -5, 0},
		{"negative infinity", math.Inf(-1), 0},
		{"tiny", 0.01, 0},
		{"half", 0.5, 0.5},
		{"carry into one", 0.99, 1},
		{"carry into the exponent", 1.99, 2},
		{"exact", 80, 80},
		{"largest", 1e300, maxQuantity.Float(1)},
		{"infinity", math.Inf(1), maxQuantity.Float(1)},
		{"not a number", math.NaN(), maxQuantity.Float(1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, Quantize(c.x, 1).Float(1))
		})
	}
	assert.Equal(t, 15*math.Ldexp(1, 27), maxQuantity.Float(1))
}
