package perf

import (
	"errors"
	"fmt"
	"slices"

	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucp/sharing"
	"github.com/goucx/goucx/verbs"
)

// Layout is the form in which the sending side passes its data.
type Layout string

// Layouts of UCT tests; UCP tests choose their own. A verbs test sends short messages inline in
// the work request, unless the layout is Zcopy.
const (
	Short Layout = "short"
	Bcopy Layout = "bcopy"
	Zcopy Layout = "zcopy"
)

// Limits of the parameters.
const (
	// MaxSize is the maximum size of a message in bytes.
	MaxSize = 4 << 30
	// MaxWindow is the maximum number of outstanding operations.
	MaxWindow = 1 << 16
	// MaxThreads is the maximum number of threads of a test.
	MaxThreads = 256
	// unlimited stands for -n 0: a run that ends when it is interrupted.
	unlimited = 1 << 62
)

// Params are the parameters on which both sides of a run must agree. The client sends them to the
// server as JSON; the names are part of the protocol.
type Params struct {
	Test string `json:"test"`
	// Sizes of the pieces of one message in bytes.
	Sizes []int64 `json:"sizes"`
	// Stride is the distance between the pieces in the buffer; 0: contiguous.
	Stride int64 `json:"stride,omitempty"`
	// Iterations to measure; 0: unlimited.
	Iterations int64 `json:"iterations"`
	// Warmup iterations; at most a tenth of Iterations are executed.
	Warmup int64 `json:"warmup"`
	// Window is the maximum number of outstanding operations; 0: the test's default.
	Window int `json:"window,omitempty"`

	// Transport and Device select the interface of UCT tests by name; "": the only one. Verbs
	// tests use Device; "": the device that carries the connection to the other side, and within
	// one process the first.
	Transport string `json:"transport,omitempty"`
	Device    string `json:"device,omitempty"`
	// PostList is the number of work requests that streams of verbs tests post at once; 0 means 1.
	PostList int    `json:"post_list,omitempty"`
	Layout   Layout `json:"layout,omitempty"`
	// Unsignaled is the number of work requests per requested completion of verbs_rate; 0: 64. Its
	// PostList is 32 by default.
	Unsignaled int `json:"unsignaled,omitempty"`
	// Without is a comma list of the features that verbs_rate does not use: postlist and unsignaled,
	// whose numbers are 1 then, inlining and blueflame.
	Without string `json:"without,omitempty"`
	// Ways says what the threads of verbs_rate share.
	Ways Ways `json:"ways,omitzero"`
	// Sharing is the policy, by name, by which the threads of verbs_rate share; "": Ways. In a UCP
	// test the threads of each side send as Threads of one worker with this policy; "": each by its own
	// worker.
	Sharing string `json:"sharing,omitempty"`
	// AMWindow is the number of active messages that am_bw sends ahead of the receiver's
	// acknowledgments.
	AMWindow int `json:"am_window,omitempty"`
	// AMHeader is the length of an active message's header in bytes. It is part of the message's
	// size in UCT tests, and additional in UCP tests. Negative: the test's default, which is 8 and
	// 0.
	AMHeader int64 `json:"am_header"`

	// Threads is the thread mode of UCP tests: single, serialized or multi.
	Threads string `json:"threads,omitempty"`
	// ThreadCount is the number of threads of UCP tests, each with its own worker and endpoint; 0
	// means 1. A verbs test within one process may have two: its two sides. Those of verbs_rate are
	// within one process.
	ThreadCount int `json:"thread_count,omitempty"`
	// Sleep makes waits of UCP tests block after spinning for UCX_SPIN_TIME; else they poll.
	Sleep bool `json:"sleep,omitempty"`
	// Unexpected makes tag tests post a receive only after a probe has found its message.
	Unexpected bool `json:"unexpected,omitempty"`
	// AMCopy copies the data of active messages in their handler.
	AMCopy bool `json:"am_copy,omitempty"`
	// Wildcard receives with a mask that matches any tag.
	Wildcard bool `json:"wildcard,omitempty"`
	// SendHeap and RecvHeap are the memory of the message of a UCP test, at its sender and its receiver: of the Go
	// heap, else allocated by goucx, as UCX does with -m host. The receiver's is also that of one-sided tests.
	SendHeap bool `json:"send_heap,omitempty"`
	RecvHeap bool `json:"recv_heap,omitempty"`
	// Registered uses registered memory on the sending side of UCP tests.
	Registered bool `json:"registered,omitempty"`
	// ErrorHandling is accepted for compatibility with UCX: endpoints always have it.
	ErrorHandling bool `json:"error_handling,omitempty"`
	// Wakeup is accepted for compatibility with UCX: workers always support it.
	Wakeup bool `json:"wakeup,omitempty"`
	// Validate checks the bytes of each message of a ping-pong.
	Validate bool `json:"validate,omitempty"`
	// Unprogressed makes the passive side of one-sided tests block without progress.
	Unprogressed bool `json:"unprogressed,omitempty"`
	// NoPin registers memory without pinning it.
	NoPin bool `json:"no_pin,omitempty"`
	// StampEach reads the clock at every message of a stream.
	StampEach bool `json:"stamp_each,omitempty"`
	// Rank is the reported percentile, 0 to 100.
	Rank float64 `json:"rank"`
}

// Defaults returns UCX's defaults.
func Defaults() Params {
	return Params{
		Sizes: []int64{8}, Iterations: 1_000_000, Warmup: 10_000,
		Layout: Short, AMWindow: 127, AMHeader: -1, Threads: "single", ThreadCount: 1, Rank: 50,
	}
}

// Size returns the length of a message in bytes.
func (p *Params) Size() int64 {
	var n int64
	for _, s := range p.Sizes {
		n += s
	}
	return n
}

// largeMessage is the size from which a stream is stamped at every message: 64 of them may take longer
// than the time between rows, and an interruption before the first stamp has no row.
const largeMessage = 1 << 20

// StampStride returns the number of messages per stamp of the clock: 64 of a stream, unless it has
// fewer messages, its messages are large, or StampEach is set.
func (p *Params) StampStride(t Test) int64 {
	if t.Pattern == PingPong || p.StampEach && t.Op != OpSharedPut || p.iterations() < streamStride || p.Size() >= largeMessage {
		return 1
	}
	return streamStride
}

// Check returns all errors in the parameters that do not depend on a transport, joined. An unknown
// or unsupported test is reported alone.
func (p *Params) Check() error {
	t, err := Lookup(p.Test)
	if err != nil {
		return err
	}
	if t.Later {
		return fmt.Errorf("test %s: %w: goucx has no streams", t.Name, ErrNotSupportedYet)
	}
	return errors.Join(p.checkCounts(), p.checkSizes(t), p.checkForm(t))
}

func (p *Params) checkCounts() error {
	var errs []error
	bad := func(ok bool, what string, v any, allowed string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s %v is out of range: %s", what, v, allowed))
		}
	}
	bad(p.Iterations >= 0, "number of iterations", p.Iterations, "at least 1, or 0 for a run without end")
	bad(p.Warmup >= 0, "number of warm-up iterations", p.Warmup, "at least 0")
	bad(p.Window >= 0 && p.Window <= MaxWindow, "window", p.Window, fmt.Sprintf("1-%d, or 0 for the test's own", MaxWindow))
	bad(p.Rank >= 0 && p.Rank <= 100, "percentile rank", p.Rank, "0-100")
	bad(p.AMWindow >= 1 && p.AMWindow <= MaxWindow, "active message window", p.AMWindow, fmt.Sprintf("1-%d", MaxWindow))
	bad(p.AMHeader >= -1, "active message header size", p.AMHeader, "at least 0")
	bad(p.Stride >= 0, "distance of pieces", p.Stride, "at least 0")
	bad(p.ThreadCount >= 0 && p.ThreadCount <= MaxThreads, "number of threads", p.ThreadCount, fmt.Sprintf("1-%d", MaxThreads))
	return errors.Join(errs...)
}

// maxPieces is the maximum number of scatter-gather entries of a message.
const maxPieces = 1024

func (p *Params) checkSizes(t Test) error {
	if len(p.Sizes) == 0 || len(p.Sizes) > maxPieces {
		return fmt.Errorf("%d message sizes are given: 1-%d", len(p.Sizes), maxPieces)
	}
	for _, s := range p.Sizes {
		if s < 0 || s > MaxSize {
			return fmt.Errorf("message size %d is out of range: 0-%d bytes", s, int64(MaxSize))
		}
		if p.Stride > 0 && p.Stride < s {
			return fmt.Errorf("distance %d of pieces is smaller than a piece of %d bytes", p.Stride, s)
		}
	}
	n := p.Size()
	switch {
	case n > MaxSize || p.Stride*int64(len(p.Sizes)) > MaxSize:
		return fmt.Errorf("message size %d is out of range: at most %d bytes", max(n, p.Stride*int64(len(p.Sizes))), int64(MaxSize))
	case t.API == Verbs && t.Op.Atomic() && n != 8:
		return fmt.Errorf("%s: message size %d: an atomic of verbs works on 8 bytes", t.Name, n)
	case t.Op.Atomic() && n != 4 && n != 8:
		return fmt.Errorf("%s: message size %d: an atomic works on 4 or 8 bytes", t.Name, n)
	case t.Op.OneSided() && n < 1:
		return fmt.Errorf("%s: message size too small, need to be at least 1", t.Name)
	case t.API == UCT && t.Op == OpAM && p.Layout != Bcopy && p.amHeader(t) > n:
		return fmt.Errorf("%s: active message header size %d is larger than message size %d", t.Name, p.amHeader(t), n)
	}
	return nil
}

func (p *Params) checkForm(t Test) error {
	var errs []error
	switch t.API {
	case UCT:
		errs = p.checkUCT(t)
	case Verbs:
		errs = p.checkVerbs(t)
	case UCP: // several sizes describe one contiguous message, as in UCX
		errs = p.checkSharing(t)
	}
	if t.API != Verbs && p.PostList != 0 {
		errs = append(errs, fmt.Errorf("%s: only tests of verbs post lists", t.Name))
	}
	if n := p.amHeader(t); t.API == UCP && t.Op == OpAM && n > ucp.MaxAMHeader {
		errs = append(errs, fmt.Errorf("%s: active message header size %d is out of range: 0-%d bytes", t.Name, n, ucp.MaxAMHeader))
	}
	if !slices.Contains([]string{"single", "serialized", "multi"}, p.Threads) {
		errs = append(errs, fmt.Errorf("thread mode %q: not one of single serialized multi", p.Threads))
	}
	if p.Validate && (t.Pattern != PingPong || t.Op.Atomic()) {
		errs = append(errs, fmt.Errorf("%s: only ping-pongs of data can be validated", t.Name))
	}
	if p.Validate && len(p.Sizes) > 1 {
		errs = append(errs, fmt.Errorf("%s: only messages of one piece can be validated", t.Name))
	}
	return errors.Join(errs...)
}

// checkSharing returns the errors of a UCP test whose threads share a worker.
func (p *Params) checkSharing(t Test) (errs []error) {
	if p.Sharing == "" {
		return nil
	}
	policy, err := sharing.Lookup(p.Sharing)
	if err != nil {
		return []error{fmt.Errorf("%s: %w", t.Name, err)}
	}
	if plan, err := policy.Plan(sharing.Input{Threads: 2}); err == nil && plan.SharesQPs() && p.Threads != "multi" {
		errs = append(errs, fmt.Errorf("%s: sharing policy %s: its threads share queue pairs behind the worker's lock: give thread mode multi", t.Name, p.Sharing))
	}
	if p.Sleep {
		errs = append(errs, fmt.Errorf("%s: with a sharing policy waits poll, since a thread waits for its worker's events and its own", t.Name))
	}
	return errs
}

func (p *Params) checkUCT(t Test) (errs []error) {
	switch p.Layout {
	case Short, Bcopy, Zcopy:
	default:
		errs = append(errs, fmt.Errorf("data layout %q: not one of %s %s %s", p.Layout, Short, Bcopy, Zcopy))
	}
	if t.Op == OpAM && p.Layout == Short && p.amHeader(t) != 8 {
		errs = append(errs, fmt.Errorf("%s: a short active message has a header of 8 bytes, not %d", t.Name, p.AMHeader))
	}
	if p.threads() > 1 || p.Sleep {
		errs = append(errs, fmt.Errorf("%s: tests of the transport layer have one thread, which polls", t.Name))
	}
	if len(p.Sizes) > 1 && p.Layout != Zcopy {
		errs = append(errs, fmt.Errorf("a message of %d pieces needs data layout %s", len(p.Sizes), Zcopy))
	}
	return errs
}

func (p *Params) checkVerbs(t Test) (errs []error) {
	if p.Layout != Short && p.Layout != Zcopy {
		errs = append(errs, fmt.Errorf("data layout %q: tests of verbs have %s and %s", p.Layout, Short, Zcopy))
	}
	if p.threads() > 2 && t.Op != OpSharedPut || p.Sleep {
		errs = append(errs, fmt.Errorf("%s: tests of verbs have one thread, or one for each side, which poll", t.Name))
	}
	if len(p.Sizes) > verbs.MaxSGE {
		errs = append(errs, fmt.Errorf("%s: %d message sizes are given: a work request has 1-%d pieces", t.Name, len(p.Sizes), verbs.MaxSGE))
	}
	if t.Op.Atomic() && len(p.Sizes) > 1 {
		errs = append(errs, fmt.Errorf("%s: an atomic has one piece", t.Name))
	}
	if t.Op == OpSharedPut {
		return append(errs, p.checkRate(t))
	}
	if n := p.postList(); n < 1 || n > maxPostList || n > p.window(t) && t.Pattern != PingPong {
		errs = append(errs, fmt.Errorf("%s: list of %d work requests is out of range: 1-%d, and no more than the window of %d",
			t.Name, n, maxPostList, p.window(t)))
	}
	return errs
}

// maxPostList is the maximum number of work requests of one post.
const maxPostList = 1024

// postList returns the number of work requests of one post.
func (p *Params) postList() int {
	if p.PostList == 0 {
		return 1
	}
	return p.PostList
}

// iterations returns the number of iterations, with endless for an unlimited run.
func (p *Params) iterations() int64 {
	if p.Iterations == 0 {
		return unlimited
	}
	return p.Iterations
}

// threads returns the number of threads.
func (p *Params) threads() int { return max(p.ThreadCount, 1) }

// amHeader returns the length of an active message's header in bytes.
func (p *Params) amHeader(t Test) int64 {
	switch {
	case p.AMHeader >= 0:
		return p.AMHeader
	case t.API == UCT:
		return 8
	default:
		return 0
	}
}

// warmup returns the number of unmeasured iterations. As in UCX it is at most a tenth of the
// measured ones.
func (p *Params) warmup() int64 {
	n := p.iterations()
	return min(p.Warmup, n/10+min(n%10, 1))
}

// Effective returns the effective parameters of a run of test t: with defaults replaced, with the
// actual warm-up, and without what the test does not use, which is zero.
func (p *Params) Effective(t Test) Params {
	q := p.rateParams(t)
	q.Warmup, q.Window, q.ThreadCount = p.warmup(), p.window(t), p.threads()
	q.AMHeader = 0
	if t.Op == OpAM {
		q.AMHeader = p.amHeader(t)
	}
	if t.API != UCT || t.Op != OpAM || t.Pattern != Stream {
		q.AMWindow = 0
	}
	if t.API != UCT {
		q.Transport = ""
	}
	if t.API != Verbs || t.Pattern == PingPong {
		q.PostList = 0
	}
	if t.API == UCP {
		q.Stride = 0
	} else if t.Op != OpSharedPut {
		q.Sharing = ""
	}
	tags, ams := t.Op == OpTag || t.Op == OpTagSync, t.API == UCP && t.Op == OpAM
	q.Unexpected, q.Wildcard, q.AMCopy = q.Unexpected && tags, q.Wildcard && tags, q.AMCopy && ams
	q.Unprogressed = q.Unprogressed && t.unattended()
	q.Registered = q.Registered && t.API == UCP && !t.Op.Atomic()
	q.SendHeap, q.RecvHeap = q.SendHeap && t.API == UCP, q.RecvHeap && t.API == UCP && (tags || ams || t.Op.OneSided())
	if t.API == UCP {
		q.Device, q.Layout = "", ""
		q.NoPin = q.NoPin && (t.Op.OneSided() || q.Registered)
		return q
	}
	q.Threads, q.ErrorHandling, q.Wakeup = "", false, false
	q.NoPin = q.NoPin && t.API == UCT
	q.StampEach = q.StampEach && t.Op != OpSharedPut // a list is one call
	return q
}

func (p *Params) window(t Test) int {
	if p.Window == 0 {
		return t.Window
	}
	return p.Window
}
