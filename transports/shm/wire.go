package shm

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/protocol"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup/machine"
)

// Messages on a connection's socket, little-endian:
//
//	0  magic u32 | 4 version u8 | 5 features u8 | 6 kind u8 | 7 flags u8
//	8  name of the sender's iface [8]
//	16 slot u16 in the sender's doorbell page | 18 reserved
//	20 cells u32 | 24 bulk u32 (bytes) of each ring of the ring pair in this message
//	28 pair u32 | 32 old u32: ids in the sender's numbering (wireup/machine) | 36 reserved
//	40 the sender's worker UUID [16]
//	56 the sender's connection id u64
//	64 reason (REJECT only)
//	64 slot u32 | 68 generation u64 | 76 base u64 | 84 length u64 (COPY_REGION only)
//
// Descriptors: OPEN carries the ring pair, the initiator's doorbell page and its wake
// pipe. ACCEPT and OPEN_CROSSED carry the acceptor's doorbell page and wake pipe; ACCEPT
// also carries ring pair old, if that is set. MIGRATE carries the ring pair, COPY_TABLE the table,
// COPY_REGION the region and the key table of its domain.
const (
	connMagic  = 0x78637567 // "gucx"
	connMsgLen = 64
	regionLen  = 28
	maxReason  = 200
	maxConnMsg = connMsgLen + maxReason
)

var connFormat = protocol.Format{Name: "connection message of shm", Version: 4, Features: [8]string{4: "copies", 5: "mailbox"}}

// featureCopies: the sender reads COPY_TABLE.
const featureCopies protocol.Features = 1 << 4

// featureMailbox: the sender reads the mailbox of a ring pair, if it publishes that it polls it.
const featureMailbox protocol.Features = 1 << 5

// msgKind is the type of a message.
type msgKind uint8

const (
	kindOpen msgKind = iota + 1
	kindAccept
	// kindClose is CLOSE: the sender sends no more on this connection.
	kindClose
	// kindShutdown is SHUTDOWN: the sender closes its worker and disconnects.
	kindShutdown
	// kindReject is REJECT: the acceptor rejects the connection; a reason follows.
	kindReject
	// The kinds up to kindSuspendNak are those of wireup/machine.
	kindOpenCrossed
	kindMigrate
	kindMigrateAck
	kindMigrateNak
	kindSuspend
	kindSuspendAck
	kindSuspendNak
	// kindCopyTable is COPY_TABLE: the sender's copy table for this connection.
	kindCopyTable
	// kindCopyRegion is COPY_REGION: memory with exposed messages, or with the buffers of fetches; its regionRef,
	// base and length follow.
	kindCopyRegion
	numKinds
)

// machineKinds maps kinds to the machine's. SHUTDOWN, REJECT, COPY_TABLE and COPY_REGION have no machine message.
var machineKinds = [numKinds]machine.MsgKind{
	kindOpen: machine.MsgOpen, kindAccept: machine.MsgAccept, kindClose: machine.MsgClose, kindOpenCrossed: machine.MsgOpenCrossed,
	kindMigrate: machine.MsgMigrate, kindMigrateAck: machine.MsgMigrateAck, kindMigrateNak: machine.MsgMigrateNak,
	kindSuspend: machine.MsgSuspend, kindSuspendAck: machine.MsgSuspendAck, kindSuspendNak: machine.MsgSuspendNak,
}

const (
	// flagFence: the sender cannot issue a barrier in its peers (membarrier). A peer
	// must issue one between its store of a message and its load of the armed word.
	flagFence = 1 << iota
	// flagSeparate: this connection never crosses with a connect of the peer. Another
	// connection of the sender to this peer is opening or closing.
	flagSeparate
	// flagResume and flagClosing are the flags of machine.Msg.
	flagResume
	flagClosing
)

// ifaceName identifies an iface on its host. It is random and part of its socket name.
type ifaceName [8]byte

// connMsg is a message on a connection's socket, of any kind. The fields are those above;
// pair, old, worker and conn carry the machine's part.
type connMsg struct {
	kind        msgKind
	features    protocol.Features
	flags       uint8
	name        ifaceName
	slot        uint16
	cells, bulk uint32
	pair, old   machine.PairID
	worker      [16]byte
	conn        uint64
	reason      string
	region      copyRegion
}

// setMachineMsg stores machine message m in h.
func (h *connMsg) setMachineMsg(m machine.Msg) {
	h.pair, h.old, h.worker, h.conn = m.Pair, m.Old, m.Worker, m.From
	if m.Resume {
		h.flags |= flagResume
	}
	if m.Closing {
		h.flags |= flagClosing
	}
}

// machineMsg returns the machine message in h.
func (h *connMsg) machineMsg() machine.Msg {
	return machine.Msg{
		Kind: machineKinds[h.kind], Worker: h.worker, From: h.conn, Pair: h.pair, Old: h.old,
		Resume: h.flags&flagResume != 0, Closing: h.flags&flagClosing != 0,
	}
}

func (h *connMsg) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, connMagic)
	b = append(b, connFormat.Version, byte(h.features), byte(h.kind), h.flags)
	b = append(b, h.name[:]...)
	b = binary.LittleEndian.AppendUint16(b, h.slot)
	b = binary.LittleEndian.AppendUint16(b, 0)
	b = binary.LittleEndian.AppendUint32(b, h.cells)
	b = binary.LittleEndian.AppendUint32(b, h.bulk)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.pair))
	b = binary.LittleEndian.AppendUint32(b, uint32(h.old))
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = append(b, h.worker[:]...)
	b = binary.LittleEndian.AppendUint64(b, h.conn)
	if h.kind == kindCopyRegion {
		b = binary.LittleEndian.AppendUint32(b, h.region.slot)
		b = binary.LittleEndian.AppendUint64(b, h.region.gen)
		b = binary.LittleEndian.AppendUint64(b, h.region.base)
		return binary.LittleEndian.AppendUint64(b, h.region.length)
	}
	return append(b, h.reason[:min(len(h.reason), maxReason)]...)
}

// parseConnMsg decodes and validates a message, except for the geometry of its ring pair.
//
// Errors: a [protocol.Error] for a message of another version, or with an unknown required feature;
// else ucs.ErrInvalid with the invalid field.
func parseConnMsg(b []byte) (h connMsg, err error) {
	if len(b) < 8 || len(b) > maxConnMsg {
		return h, fmt.Errorf("connection message of %d bytes: %w", len(b), ucs.ErrInvalid)
	}
	if m := binary.LittleEndian.Uint32(b); m != connMagic {
		return h, fmt.Errorf("connection message begins with %#x, not goucx's: %w", m, ucs.ErrInvalid)
	}
	if err := connFormat.Check(b[4], protocol.Features(b[5])); err != nil {
		return h, err
	}
	if len(b) < connMsgLen {
		return h, fmt.Errorf("connection message of %d bytes: %w", len(b), ucs.ErrInvalid)
	}
	h = connMsg{
		kind:     msgKind(b[6]),
		features: protocol.Features(b[5]) & (featureCopies | featureMailbox),
		flags:    b[7],
		name:     ifaceName(b[8:16]),
		slot:     binary.LittleEndian.Uint16(b[16:]),
		cells:    binary.LittleEndian.Uint32(b[20:]),
		bulk:     binary.LittleEndian.Uint32(b[24:]),
		pair:     machine.PairID(binary.LittleEndian.Uint32(b[28:])),
		old:      machine.PairID(binary.LittleEndian.Uint32(b[32:])),
		worker:   [16]byte(b[40:56]),
		conn:     binary.LittleEndian.Uint64(b[56:]),
	}
	if h.kind < kindOpen || h.kind >= numKinds {
		return h, fmt.Errorf("connection message of unknown kind %d: %w", h.kind, ucs.ErrInvalid)
	}
	switch {
	case h.kind == kindReject:
		h.reason = string(b[connMsgLen:])
	case h.kind == kindCopyRegion && len(b) == connMsgLen+regionLen:
		h.region = copyRegion{
			regionRef: regionRef{slot: binary.LittleEndian.Uint32(b[64:]), gen: binary.LittleEndian.Uint64(b[68:])},
			base:      binary.LittleEndian.Uint64(b[76:]), length: binary.LittleEndian.Uint64(b[84:]),
		}
	case len(b) != connMsgLen || h.kind == kindCopyRegion:
		return h, fmt.Errorf("connection message of kind %d with %d bytes: %w", h.kind, len(b), ucs.ErrInvalid)
	}
	if h.slot >= slotsPerPage {
		return h, fmt.Errorf("connection message names doorbell slot %d of %d: %w", h.slot, slotsPerPage, ucs.ErrInvalid)
	}
	return h, nil
}

// The key protocol: one request and one reply, one message each, little-endian;
// docs/wire/shm-key.md.
const (
	requestMagic = 0x51585547 // "GUXQ"
	replyMagic   = 0x52585547 // "GUXR"

	requestLen     = 40
	replyHeaderLen = 8
	maxReply       = replyHeaderLen + mapped.MaxKey
)

// keyServerFormat is the format of requests and of replies.
var keyServerFormat = protocol.Format{Name: "key request of shm", Version: 1}

// keyRequest is a request for a region.
type keyRequest struct {
	wantTable bool
	domain    uct.UUID
	slot      uint32
	gen       uint64
}

func (a *keyRequest) append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, requestMagic)
	var flags byte
	if a.wantTable {
		flags = 1
	}
	b = append(b, keyServerFormat.Version, flags, 0, 0)
	b = append(b, a.domain[:]...)
	b = le.AppendUint32(b, a.slot)
	b = le.AppendUint32(b, 0)
	return le.AppendUint64(b, a.gen)
}

var errRequest = errors.New("bad key request")

func (a *keyRequest) parse(b []byte) error {
	le := binary.LittleEndian
	if len(b) < replyHeaderLen {
		return fmt.Errorf("%w: %d bytes, want %d", errRequest, len(b), requestLen)
	}
	if m := le.Uint32(b); m != requestMagic {
		return fmt.Errorf("%w: magic %#x", errRequest, m)
	}
	if err := keyServerFormat.Check(b[4], protocol.Features(b[6])); err != nil {
		return err
	}
	if len(b) != requestLen {
		return fmt.Errorf("%w: %d bytes, want %d", errRequest, len(b), requestLen)
	}
	if b[5] > 1 || b[7] != 0 || le.Uint32(b[28:]) != 0 {
		return fmt.Errorf("%w: unknown flags", errRequest)
	}
	*a = keyRequest{wantTable: b[5] == 1, domain: uct.UUID(b[8:24]), slot: le.Uint32(b[24:]), gen: le.Uint64(b[32:])}
	return nil
}

// keyStatus is the status of a reply.
type keyStatus uint8

const (
	keyOK          keyStatus = iota
	keyWrongDomain           // the socket belongs to another domain
	keyRevoked               // the region was revoked or closed
	keyUnsupported           // another version, an unknown feature, or not a request
	numKeyStatuses
)

var keyStatusErrs = [numKeyStatuses]error{
	keyWrongDomain: fmt.Errorf("the key server belongs to another domain: %w", ucs.ErrRemoteAccess),
	keyRevoked:     fmt.Errorf("the region was revoked or closed: %w", ucs.ErrRemoteAccess),
	keyUnsupported: fmt.Errorf("the owner does not support this request: %w", ucs.ErrUnsupported),
}

// keyReply is the reply to a request. With keyOK the region's packed key follows, and
// these descriptors in this order: the key table, if requested, and the region, if it is
// allocated.
type keyReply struct {
	status keyStatus
	// refused are the required features of the request that the owner does not know.
	refused protocol.Features
	region  mapped.PackedKey
}

func (r *keyReply) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, replyMagic)
	b = append(b, keyServerFormat.Version, byte(r.status), 0, byte(r.refused))
	if r.status == keyOK {
		b = r.region.Append(b)
	}
	return b
}

var errReply = fmt.Errorf("invalid reply of the key server: %w", ucs.ErrInvalid)

func (r *keyReply) parse(b []byte) error {
	if len(b) < replyHeaderLen {
		return fmt.Errorf("%w: %d bytes", errReply, len(b))
	}
	if m := binary.LittleEndian.Uint32(b); m != replyMagic {
		return fmt.Errorf("%w: magic %#x", errReply, m)
	}
	if err := keyServerFormat.Check(b[4], protocol.Features(b[6])); err != nil {
		return err
	}
	r.status, r.refused = keyStatus(b[5]), protocol.Features(b[7])
	switch {
	case r.status >= numKeyStatuses || r.refused != 0 && r.status != keyUnsupported:
		return fmt.Errorf("%w: status %d", errReply, b[5])
	case r.refused != 0:
		return &protocol.Error{Format: &keyServerFormat, Version: b[4], Features: r.refused, Local: true}
	case r.status != keyOK:
		return nil
	}
	if err := r.region.Parse(b[replyHeaderLen:]); err != nil {
		return fmt.Errorf("%w: %w", errReply, err)
	}
	return nil
}
