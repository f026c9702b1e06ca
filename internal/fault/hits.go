package fault

import (
	"encoding/binary"
	"fmt"
	"os"
)

// Environment of a process that is built with the tag.
const (
	// PlanEnv is "point:n:action", see the package.
	PlanEnv = "GOUCX_FAULT"
	// HitsEnv names the file that the hits are written to.
	HitsEnv = "GOUCX_FAULT_HITS"
)

const hitBytes = 8

// Hits is how often each point was reached.
type Hits [NumPoints]uint64

// ReadHits reads the file that a process wrote its hits to. Points that were
// never reached may be missing at its end.
func ReadHits(name string) (h Hits, err error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return h, fmt.Errorf("read fault hits: %w", err)
	}
	for p := range h {
		if len(b) >= (p+1)*hitBytes {
			h[p] = binary.LittleEndian.Uint64(b[p*hitBytes:])
		}
	}
	return h, nil
}
