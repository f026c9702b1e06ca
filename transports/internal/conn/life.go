package conn

// Life is the state of a connection from its creation to its release:
//
//	HalfOpen --Confirm--> Open --HangUp--> HungUp --Finish--> Finished
//	    |                  |                  |                  |
//	    +------------------+-------Fail-------+------------------+
//	                               v
//	                            Failing --Report--> Ended --Release--> Released
//
// Report leads from every state before Ended to Ended: a connection that both sides have closed is
// reported without a failure. Release leads from every state to Released.
//
// The zero value is Open: a connection that this side initiates.
type Life uint8

const (
	// Open: both directions may carry messages, as far as the connection machine allows.
	Open Life = iota
	// HalfOpen: a peer has opened the connection, and nothing shows yet that it receives.
	HalfOpen
	// HungUp: the peer is gone. Its last messages are not delivered yet.
	HungUp
	// Finished: the peer is gone after an orderly end.
	Finished
	// Failing: the connection has ended with Conn.Err, which is not reported yet.
	Failing
	// Ended: the end was reported to the layer above.
	Ended
	// Released: all resources of the connection are free.
	Released
	numLives
)

// Change is an event in the life of a connection.
type Change uint8

const (
	// Confirm: a message shows that the peer receives, or an endpoint uses the connection.
	Confirm Change = iota
	// HangUp: the peer has closed its socket or has exited.
	HangUp
	// Finish: the messages of a peer that hung up are delivered, and none is missing.
	Finish
	// Fail: the connection ends with an error.
	Fail
	// Report: the end is reported to the layer above.
	Report
	// Release: the resources are freed.
	Release
	numChanges
)

// next is the table of transitions. A change that has no effect in a state leads to the same state.
var next = [numLives][numChanges]Life{
	Open:     {Confirm: Open, HangUp: HungUp, Finish: Open, Fail: Failing, Report: Ended, Release: Released},
	HalfOpen: {Confirm: Open, HangUp: HungUp, Finish: HalfOpen, Fail: Failing, Report: Ended, Release: Released},
	HungUp:   {Confirm: HungUp, HangUp: HungUp, Finish: Finished, Fail: Failing, Report: Ended, Release: Released},
	Finished: {Confirm: Finished, HangUp: Finished, Finish: Finished, Fail: Failing, Report: Ended, Release: Released},
	Failing:  {Confirm: Failing, HangUp: Failing, Finish: Failing, Fail: Failing, Report: Ended, Release: Released},
	Ended:    {Confirm: Ended, HangUp: Ended, Finish: Ended, Fail: Ended, Report: Ended, Release: Released},
	Released: {Confirm: Released, HangUp: Released, Finish: Released, Fail: Released, Report: Released, Release: Released},
}

// Step applies a change and reports whether it had an effect.
func (l *Life) Step(c Change) bool {
	was := *l
	*l = next[was][c]
	return *l != was
}

// Over reports whether the connection has ended: with an error, or after both sides have closed.
func (l Life) Over() bool { return l >= Failing }

var lifeNames = [numLives]string{
	Open: "open", HalfOpen: "half-open", HungUp: "hung up", Finished: "finished", Failing: "failing", Ended: "ended", Released: "released",
}

// String returns the state in lower case.
func (l Life) String() string { return lifeNames[l] }
