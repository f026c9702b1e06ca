package fault

import "fmt"

// Point is a step at which a process may be killed or stopped.
type Point uint8

// The points, in the order of a connection's life. They differ in what the other side observes.
const (
	Connect       Point = iota // the connect message is created, not yet sent
	Accept                     // a connection is mapped, its acceptance not yet sent
	Reserve                    // room for a message is reserved, nothing is written
	HalfCopied                 // its payload is partly copied
	BeforePublish              // it is complete and not yet visible
	AfterPublish               // it is visible; no doorbell and no wake-up sent
	BeforeMail                 // as BeforePublish, in a mailbox
	AfterMail                  // as AfterPublish, in a mailbox
	RTS                        // an RTS is about to be sent
	RTR                        // an RTR is about to be sent
	Data                       // a piece of the data is about to be sent
	LastData                   // the last piece is about to be sent
	Piece                      // a piece of a message that is copied from memory to memory is claimed
	Help                       // as Piece, by the owner of the message
	PieceCopied                // such a piece is copied, the next one not claimed
	HelpCopied                 // as PieceCopied, by the owner of the message
	Grow                       // a larger ring is created, the other side not yet notified
	Unmap                      // an idle connection is about to be unmapped
	Armed                      // the armed word is set, the rings not yet checked again
	Closing                    // a connection is about to be closed in order
	NumPoints                  // number of points
)

var names = [NumPoints]string{
	"connect", "accept", "reserve", "half copied", "before publish", "after publish", "before mail", "after mail",
	"rts", "rtr", "data", "last data", "piece", "help", "piece copied", "help copied", "grow", "unmap", "armed", "closing",
}

// String returns the point's name, as used in GOUCX_FAULT.
func (p Point) String() string {
	if p < NumPoints {
		return names[p]
	}
	return fmt.Sprintf("point %d", uint8(p))
}

// Parse returns the point with the given name.
func Parse(name string) (Point, error) {
	for p, n := range names {
		if n == name {
			return Point(p), nil
		}
	}
	return 0, fmt.Errorf("fault point %q is not one of %q", name, names)
}
