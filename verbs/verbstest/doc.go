// Package verbstest is the conformance suite of package verbs: what every device
// must do, from every provider.
//
// A provider's test is one call:
//
//	func TestConformance(t *testing.T) { verbstest.Run(t, verbstest.Fixture{Name: "soft-inproc", Open: open}) }
//	func TestGateAllocs(t *testing.T)  { verbstest.Gates(t, fixture) }
//
// Each case opens a Fabric, two devices that reach each other, and lets queue
// pairs talk. Nothing but the polls of a case needs to drive the devices, so a
// simulated link with a clock of its own serves as well as a real one; the suite
// never sleeps. Cases that look at packets, forge them, or use several goroutines
// say so (Needs), and do not apply where the fixture lacks it. matrix.txt lists
// the outcome of every case for every fixture; any difference fails.
//
// # How the suite reads the specification
//
// Where the specification or package verbs leave room, these readings hold; Traits
// names those in which hardware and software differ.
//
//   - A refused post is InvalidParam, a full queue NoResource.
//   - Of a failed completion only ID, Status and QPN count.
//   - A queue that was closed or reset has no completions left anywhere.
//   - A missing right of the queue pair ends the request with WCRemAccessErr or
//     WCRemInvReqErr; one of the memory with WCRemAccessErr.
//   - Pieces of inline data name registered memory as others do; whether their key
//     is looked at is not asked.
//   - A request that names no address handle of its domain is refused, or fails.
//   - Modify refuses before it changes anything.
//   - A window that cannot be bound is refused by the call, or the request ends with
//     WCMWBindErr.
//   - A request of an unreliable connection that cannot be sent moves it to state SQE or
//     Err.
//   - RetryCnt time-outs, and one more, fail a request: it is sent RetryCnt + 1
//     times. So do RNRRetry waits.
//   - A packet that needs no reply is dropped silently; what came after it is
//     served.
//
// Not tested: events of ports, which nothing here can cause, and PeerProber of
// verbs/optional.go.
//
// Start reading at fixture.go, env.go and pair.go.
package verbstest
