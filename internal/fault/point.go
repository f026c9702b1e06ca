package fault

import "fmt"

// Point is a step at which a process may die or be stopped.
type Point uint8

// The points, in the order of a connection's life. What the other side sees at
// each is what makes them differ.
const (
	Connect       Point = iota // the connect message is made, not yet sent
	Accept                     // a connection is mapped, its acceptance not yet sent
	Reserve                    // room for a message is taken, nothing is written
	HalfCopied                 // its payload is partly in place
	BeforePublish              // it is complete and not yet visible
	AfterPublish               // it is visible; no hint and no wake-up given
	RTS                        // a rendezvous request is about to be sent
	RTR                        // a receiver is about to ask for the data
	Data                       // a piece of the data is about to be sent
	LastData                   // its last piece is about to be sent
	Grow                       // a larger ring is made, the other side not yet told
	Unmap                      // an idle connection is about to be unmapped
	Armed                      // the armed word is set, the rings not looked at again
	Closing                    // a connection is about to be closed in order
	NumPoints                  // how many there are
)

var names = [NumPoints]string{
	"connect", "accept", "reserve", "half copied", "before publish", "after publish",
	"rts", "rtr", "data", "last data", "grow", "unmap", "armed", "closing",
}

// String is the point's name, as GOUCX_FAULT has it.
func (p Point) String() string {
	if p < NumPoints {
		return names[p]
	}
	return fmt.Sprintf("point %d", uint8(p))
}

// Parse gives the point of a name.
func Parse(name string) (Point, error) {
	for p, n := range names {
		if n == name {
			return Point(p), nil
		}
	}
	return 0, fmt.Errorf("fault point %q is not one of %q", name, names)
}
