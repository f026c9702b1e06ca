package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/uct"
)

// capabilities is the JSON form of an iface's attributes. Sizes are in bytes, 0 if unsupported.
type capabilities struct {
	Dedicated      float64             `json:"dedicated_bandwidth_bytes_per_second"`
	Shared         float64             `json:"shared_bandwidth_bytes_per_second"`
	LatencyNS      float64             `json:"latency_ns"`
	LatencyPerEpNS float64             `json:"latency_per_endpoint_ns"`
	OverheadNS     float64             `json:"overhead_ns"`
	Limits         map[string]limit    `json:"limits"`
	Atomics        map[string][]string `json:"atomics"` // operation: widths
	AtomicDomain   string              `json:"atomic_domain"`
	Connection     string              `json:"connection"`
	Flush          []string            `json:"flush"`
	Fence          bool                `json:"fence"`
	WakeUp         []string            `json:"wake_up"`
	ErrorHandling  []string            `json:"error_handling"`
}

// limit holds the limits of one form of an operation.
type limit struct {
	Min    bound `json:"min"`
	Max    bound `json:"max"`
	MaxVec bound `json:"max_vec,omitempty"`
	Head   bound `json:"max_head,omitempty"`
}

// bound is a size or a number; JSON represents "no limit" as null.
type bound int

var _ json.Marshaler = bound(0)

// MarshalJSON implements json.Marshaler.
func (b bound) MarshalJSON() ([]byte, error) {
	if b >= unlimited {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, int64(b), 10), nil
}

// count is a number of which 0 means that there is no limit: null in JSON.
type count int

var _ json.Marshaler = count(0)

// MarshalJSON implements json.Marshaler.
func (c count) MarshalJSON() ([]byte, error) {
	if c == 0 {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, int64(c), 10), nil
}

func (c count) String() string {
	if c == 0 {
		return "inf"
	}
	return strconv.Itoa(int(c))
}

// forms lists the operations with limits, in UCX's order.
var forms = []struct {
	name string
	op   uct.Ops
	of   func(*uct.IfaceAttr) limit
}{
	{"put_short", uct.OpPutShort, func(a *uct.IfaceAttr) limit { return limit{Max: bound(a.Put.Short)} }},
	{"put_bcopy", uct.OpPutBcopy, func(a *uct.IfaceAttr) limit { return limit{Max: bound(a.Put.Bcopy)} }},
	{"put_zcopy", uct.OpPutZcopy, func(a *uct.IfaceAttr) limit { return zcopy(a.Put) }},
	{"get_short", uct.OpGetShort, func(a *uct.IfaceAttr) limit { return limit{Max: bound(a.Get.Short)} }},
	{"get_bcopy", uct.OpGetBcopy, func(a *uct.IfaceAttr) limit { return limit{Max: bound(a.Get.Bcopy)} }},
	{"get_zcopy", uct.OpGetZcopy, func(a *uct.IfaceAttr) limit { return zcopy(a.Get) }},
	{"am_short", uct.OpAMShort, func(a *uct.IfaceAttr) limit { return limit{Max: bound(a.AM.Short)} }},
	{"am_bcopy", uct.OpAMBcopy, func(a *uct.IfaceAttr) limit { return limit{Max: bound(a.AM.Bcopy)} }},
	{"am_zcopy", uct.OpAMZcopy, func(a *uct.IfaceAttr) limit { return zcopy(a.AM) }},
}

func zcopy(l uct.Limit) limit {
	return limit{Min: bound(l.MinZcopy), Max: bound(l.MaxZcopy), MaxVec: bound(l.MaxVec), Head: bound(l.MaxHeader)}
}

func capabilitiesOf(a *uct.IfaceAttr) capabilities {
	c := capabilities{
		Dedicated: a.Estimate.Dedicated, Shared: a.Estimate.Shared,
		LatencyNS: a.Estimate.LatencyNS, LatencyPerEpNS: a.Estimate.LatencyPerEpNS, OverheadNS: a.Estimate.OverheadNS,
		Limits: map[string]limit{}, Atomics: map[string][]string{},
		AtomicDomain: "cpu", Connection: "to iface", Fence: a.Ops.Has(uct.OpFence),
		Flush: named(a.Ops, flushes), WakeUp: named(a.Events, events), ErrorHandling: []string{},
	}
	for _, f := range forms {
		if a.Ops.Has(f.op) {
			c.Limits[f.name] = f.of(a)
		}
	}
	for _, m := range atomicRows(a) {
		c.Atomics[m.name] = m.widths
	}
	if a.DeviceAtomics {
		c.AtomicDomain = "device"
	}
	if a.Connect == uct.ConnectToEndpoint {
		c.Connection = "to ep"
	}
	if a.PeerFailure {
		c.ErrorHandling = append(c.ErrorHandling, "peer failure")
	}
	if a.Ops.Has(uct.OpCheck) {
		c.ErrorHandling = append(c.ErrorHandling, "ep_check")
	}
	return c
}

// bit is one bit of a set and its name.
type bit[T any] struct {
	bit  T
	name string
}

var (
	flushes = []bit[uct.Ops]{{uct.OpFlushLocal, "local"}, {uct.OpFlushRemote, "remote"}, {uct.OpFlushCancel, "cancel"}}
	events  = []bit[uct.EventKind]{{uct.EventRecv, "recv"}, {uct.EventSend, "send"}}
)

func named[T ~uint8 | ~uint32](set T, bits []bit[T]) []string {
	names := []string{}
	for _, b := range bits {
		if set&b.bit != 0 {
			names = append(names, b.name)
		}
	}
	return names
}

type atomicRow struct {
	name   string
	widths []string
}

// atomicRows lists the atomics that an iface supports. Those with a result have UCX's names with
// an f.
func atomicRows(a *uct.IfaceAttr) []atomicRow {
	var rows []atomicRow
	add := func(prefix string, op uct.AtomicOp, has32, has64 uct.AtomicSet) {
		var widths []string
		if has32.Has(op) {
			widths = append(widths, "32")
		}
		if has64.Has(op) {
			widths = append(widths, "64")
		}
		if widths != nil {
			rows = append(rows, atomicRow{"atomic_" + prefix + op.String(), widths})
		}
	}
	for op := range uct.AtomicSwap {
		add("", op, a.Post32, a.Post64)
	}
	for op := range uct.NumAtomicOps {
		prefix := "f"
		if op >= uct.AtomicSwap {
			prefix = ""
		}
		add(prefix, op, a.Fetch32, a.Fetch64)
	}
	return rows
}

// unlimited is larger than every size a machine can hold: UCX's "unlimited".
const unlimited = math.MaxInt / 4

func (l limit) String() string {
	var s string
	switch {
	case l.Min <= 0 && l.Max >= unlimited:
		s = "unlimited"
	case l.Min <= 0:
		s = "<= " + sizeText(int(l.Max))
	case l.Max >= unlimited:
		s = ">= " + sizeText(int(l.Min))
	default:
		s = sizeText(int(l.Min)) + ".." + sizeText(int(l.Max))
	}
	switch {
	case l.MaxVec >= unlimited:
		s += ", any number of iov"
	case l.MaxVec > 0:
		s += fmt.Sprintf(", up to %d iov", l.MaxVec)
	}
	return s
}

// sizeText returns a size in UCX's form, "8K".
func sizeText(n int) string {
	if n >= unlimited {
		return "unlimited"
	}
	return strings.ToUpper(config.Bytes(n).String())
}
