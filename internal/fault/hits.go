package fault

import (
	"encoding/binary"
	"fmt"
	"os"
)

// Environment variables of a process that is built with the tag.
const (
	// PlanEnv is "point:n:action"; see the package comment.
	PlanEnv = "GOUCX_FAULT"
	// HitsEnv names the file for the hit counts.
	HitsEnv = "GOUCX_FAULT_HITS"
)

const hitBytes = 8

// Hits is the number of hits of each point.
type Hits [NumPoints]uint64

// ReadHits reads the file of a process's hits. Points at the end of the list that were never
// reached may be missing in the file.
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
