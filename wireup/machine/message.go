package machine

// Kind is what a connection message says.
type Kind uint8

// Connection messages.
const (
	// Hello: I made Pair and send in it from now on.
	Hello Kind = iota + 1
	// Accept: I read Pair and send in it. Old, where set, is the sender's own
	// initiation, which it has left for Pair by a marker: it comes with what
	// belongs to it, as in a hello.
	Accept
	// Yield: I read Pair, but my own initiation stands; move there when it comes.
	Yield
	// Refuse: I do not take the connection.
	Refuse
	// Offer: I made Pair; will you use it with me? Resume: I am asleep. Old is the
	// receiver's last pair that the sender has answered.
	Offer
	// Take: I read Pair, and send in it unless Closing. Resume: I was asleep. Old,
	// where set, is an offer of the sender's own, withdrawn for this one.
	Take
	// Decline: not Pair, not now. Old as in Take.
	Decline
	// Nap: shall both leave Pair and sleep?
	Nap
	// Asleep: I have left Pair.
	Asleep
	// Stay: I do not leave Pair now.
	Stay
	// Bye: I send no more. Pair is where the end marker is; None: I was asleep.
	Bye
	// ByeAck: I heard that. Only where messages may be lost.
	ByeAck
	// Ready, with TwoStep: both halves of Pair know each other; send in it. None: have
	// you this connection still? Who has says nothing.
	Ready
	// Gone: I do not have this connection, or not any more.
	Gone
)

var kindNames = [...]string{
	"none", "hello", "accept", "yield", "refuse", "offer", "take", "decline", "nap", "asleep", "stay", "bye", "byeAck",
	"ready", "gone",
}

// String gives the kind in lower case.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "kind?"
}

// Introduces reports whether a message of this kind brings pairs with it, which
// its receiver attaches before the machine hears of it (else Unable). With TwoStep
// Machine.Wants says it.
func (m Msg) Introduces() bool {
	return m.Kind == Hello || m.Kind == Offer || m.Kind == Accept && m.Old != None
}

// Half reports, with TwoStep, whether the sender's half of Pair goes with a
// message of this kind, however often it is sent.
func (m Msg) Half() bool {
	return m.Kind == Hello || m.Kind == Accept || m.Kind == Offer || m.Kind == Take
}

// Msg is a connection message. Pairs are named from the side of whoever holds
// it: the machine translates what it hears.
type Msg struct {
	Kind Kind
	// Worker is the sender's UUID.
	Worker [16]byte
	// From and To name the sender's and the receiver's connection; To is 0 where
	// the sender does not know it yet.
	From, To uint64
	Pair     PairID
	Old      PairID
	// Resume: the sender's direction was asleep and goes on in Pair.
	Resume bool
	// Closing: the sender will not send in Pair.
	Closing bool
}

// flip translates the pairs of a message between the two sides.
func (m Msg) flip() Msg {
	m.Pair, m.Old = m.Pair.Flip(), m.Old.Flip()
	return m
}
