package rte

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// MaxRecord is the maximum length of a record's JSON in bytes. A longer record is refused before
// memory is allocated for it.
const MaxRecord = 1 << 20

// lenBytes is the size of the little-endian length before each record.
const lenBytes = 4

// Record types that this package sends.
const (
	typeHello   = "hello"
	typeBarrier = "barrier"
	typeAddress = "address"
	typeError   = "error"
	typeDone    = "done"
)

// record is one message: its type, a sequence number for the types that have one, and the body.
type record struct {
	Type string          `json:"type"`
	Seq  uint32          `json:"seq,omitempty"`
	Body json.RawMessage `json:"body,omitempty"`
}

var errRecord = errors.New("malformed record")

// appendRecord appends the encoded record to b.
func appendRecord(b []byte, r record) ([]byte, error) {
	js, err := json.Marshal(r)
	if err != nil {
		return b, fmt.Errorf("encode %s record: %w", r.Type, err)
	}
	if len(js) > MaxRecord {
		return b, fmt.Errorf("%s record of %d bytes: %w: the limit is %d", r.Type, len(js), errRecord, MaxRecord)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(js)))
	return append(b, js...), nil
}

// parseRecord parses the first record of b and returns its length; 0 and no error: b is
// incomplete. Any input is safe.
func parseRecord(b []byte) (record, int, error) {
	if len(b) < lenBytes {
		return record{}, 0, nil
	}
	n := binary.LittleEndian.Uint32(b)
	if n == 0 || n > MaxRecord {
		return record{}, 0, fmt.Errorf("%w: length %d, allowed 1-%d", errRecord, n, MaxRecord)
	}
	end := lenBytes + int(n)
	if len(b) < end {
		return record{}, 0, nil
	}
	var r record
	if err := json.Unmarshal(b[lenBytes:end], &r); err != nil {
		return record{}, 0, fmt.Errorf("%w: %w", errRecord, err)
	}
	if r.Type == "" {
		return record{}, 0, fmt.Errorf("%w: no type", errRecord)
	}
	return r, end, nil
}
