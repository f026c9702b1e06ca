package wireup

import "math"

// Quantity is a non-negative number encoded in one byte: five bits of exponent e and three of
// mantissa m. Its value is m/8 if e is 0, else (1+m/8)·2^(e-1). It is exact for multiples of 1/8
// up to 2. From there to 2·10^9 its error is at most 1/16.
//
// Both sides of a pair compute with quantized values, also for their own ifaces, so that they
// choose alike. The conversion uses exact arithmetic only, so that every machine computes the same
// byte.
type Quantity uint8

// Units of the quantities in [Attr].
const (
	nanosecond = 1.0
	megabyte   = 1e6 // bytes per second
)

const maxQuantity Quantity = math.MaxUint8

// Quantize returns the quantity nearest to x/unit. Values beyond the range and NaN return the
// largest quantity, negative values return 0.
func Quantize(x, unit float64) Quantity {
	x /= unit
	if math.IsNaN(x) || x >= maxQuantity.Float(1) {
		return maxQuantity
	}
	if x < 1 {
		return Quantity(math.RoundToEven(max(x, 0) * 8))
	}
	frac, exp := math.Frexp(x)            // x = frac·2^exp, 0.5 <= frac < 1
	m := int(math.RoundToEven(frac * 16)) // 8..16; 16 carries into the exponent
	return Quantity(exp<<3 + m - 8)
}

// Float returns the value in unit.
func (q Quantity) Float(unit float64) float64 {
	e, m := int(q>>3), float64(q&7)
	if e == 0 {
		return m / 8 * unit
	}
	return math.Ldexp(8+m, e-4) * unit
}
