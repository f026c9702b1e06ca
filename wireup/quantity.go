package wireup

import "math"

// Quantity is a non-negative number in one byte: five bits of exponent e and
// three of mantissa m, meaning m/8 where e is 0, else (1+m/8)·2^(e-1). It is
// exact for eighths up to 2 and off by at most a sixteenth from there to 2·10^9.
//
// Both sides of a pair compute with quantities, their own included, so that
// they come to the same choice; conversion uses exact arithmetic alone, so that
// every machine gets the same byte.
type Quantity uint8

// Units of the quantities in [Attr].
const (
	nanosecond = 1.0
	megabyte   = 1e6 // bytes per second
)

const maxQuantity Quantity = math.MaxUint8

// Quantize gives the quantity nearest to x/unit; too large ones, and NaN, give
// the largest, negative ones 0.
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

// Float gives the value in unit.
func (q Quantity) Float(unit float64) float64 {
	e, m := int(q>>3), float64(q&7)
	if e == 0 {
		return m / 8 * unit
	}
	return math.Ldexp(8+m, e-4) * unit
}
