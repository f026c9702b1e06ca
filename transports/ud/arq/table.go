package arq

// A Flow consists of an index of 18 bits, from 1 on, and a generation of 6 bits.
const (
	indexBits = 18
	maxFlows  = 1<<indexBits - 1
	genBits   = 6
)

// table maps a Flow to a value. Free indexes are reused in the order in which they were
// freed, so that a number is reused as late as possible.
type table[T any] struct {
	items    []item[T]
	free     []uint32
	freeHead int // start of the queue in free
}

type item[T any] struct {
	value *T
	gen   uint32
}

func (t *table[T]) at(f Flow) *T {
	i := uint32(f) & maxFlows
	if int(i) >= len(t.items) || t.items[i].gen != uint32(f)>>indexBits {
		return nil
	}
	return t.items[i].value
}

// add stores v and returns its number, or 0 if all numbers are in use.
func (t *table[T]) add(v *T) Flow {
	if len(t.items) == 0 {
		t.items = make([]item[T], 1, 8) // index 0 is reserved
	}
	var i uint32
	switch waiting := len(t.free) - t.freeHead; {
	case waiting > 64 || waiting > 0 && len(t.items) > maxFlows:
		i = t.free[t.freeHead]
		if t.freeHead++; t.freeHead*2 > len(t.free) {
			t.free = append(t.free[:0], t.free[t.freeHead:]...)
			t.freeHead = 0
		}
	case len(t.items) > maxFlows:
		return 0
	default:
		i = uint32(len(t.items))
		t.items = append(t.items, item[T]{})
	}
	t.items[i].value = v
	return Flow(i | t.items[i].gen<<indexBits)
}

func (t *table[T]) remove(f Flow) {
	if t.at(f) == nil {
		return
	}
	i := uint32(f) & maxFlows
	t.items[i].value = nil
	t.items[i].gen = (t.items[i].gen + 1) % (1 << genBits)
	t.free = append(t.free, i)
}
