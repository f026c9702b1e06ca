package wireup

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs/protocol"
	"github.com/goucx/goucx/ucs/protocol/protocoltest"
	"github.com/goucx/goucx/uct"
)

// golden is the address in docs/wire/address.md.
var golden = View{
	Host:    uct.UUID{0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
	Process: uct.UUID{0xb0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
	Worker:  uct.UUID{0xc0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
	Context: 3,
	Entries: []Entry{
		{
			Transport: uct.TransportSelf,
			Attr:      AttrOf(&uct.IfaceAttr{Ops: uct.OpsAM | uct.OpPending, Estimate: uct.Estimate{Dedicated: 19360e6, OverheadNS: 10}}),
			Addr:      uct.Address{Device: []byte{}, Iface: []byte{0xc0, 1}},
		},
		{
			Transport: uct.TransportShm,
			Device:    1,
			Attr:      AttrOf(&uct.IfaceAttr{Ops: uct.OpsAM | uct.OpsPut | uct.OpsGet, PeerFailure: true, Estimate: uct.Estimate{Dedicated: 15360e6, LatencyNS: 80, OverheadNS: 10}}),
			Addr:      uct.Address{Device: []byte("host"), Iface: []byte("name")},
		},
	},
}

func encode(t testing.TB, v View) []byte {
	b, err := v.Append(nil)
	require.NoError(t, err)
	return b
}

// seal repairs the length and the checksum of a damaged address.
func seal(b []byte) []byte {
	b = bytes.Clone(b)
	binary.LittleEndian.PutUint16(b[offLength:], uint16(len(b)))
	binary.LittleEndian.PutUint32(b[len(b)-crcLen:], crc32.Checksum(b[:len(b)-crcLen], castagnoli))
	return b
}

func TestAddressGolden(t *testing.T) {
	protocoltest.Run(t, protocoltest.Golden{
		Format: &addressFormat, File: "address", Version: offVersion, Features: offFeatures,
		Bytes: encode(t, golden), Want: golden, Seal: seal,
		Decode: func(b []byte) (any, error) {
			v, err := Parse(b)
			var table Table
			p, errAdd := table.Add(b)
			assert.Equal(t, err, errAdd)
			if err == nil {
				assert.Equal(t, v, table.View(p))
			}
			v.Features &= protocol.Required
			return v, err
		},
	})
}

func TestAddressWithoutEntries(t *testing.T) {
	v, err := Parse(encode(t, View{Worker: golden.Worker, Context: 3}))
	require.NoError(t, err)
	assert.Equal(t, View{Worker: golden.Worker, Context: 3, Entries: []Entry{}}, v)
}

func TestAppendKeepsWhatPrecedes(t *testing.T) {
	b, err := golden.Append([]byte("before"))
	require.NoError(t, err)
	assert.Equal(t, "before"+string(encode(t, golden)), string(b))
}

func TestAppendLimits(t *testing.T) {
	long := make([]byte, maxPart+1)
	for name, v := range map[string]View{
		"device part": {Entries: []Entry{{Addr: uct.Address{Device: long}}}},
		"iface part":  {Entries: []Entry{{Addr: uct.Address{Iface: long}}}},
		"whole":       {Entries: make([]Entry, 200)},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := v.Append([]byte("x"))
			require.ErrorContains(t, err, "at most")
			assert.Equal(t, "x", string(b))
		})
	}
}

func TestParseTruncatedAtEveryByte(t *testing.T) {
	b := encode(t, golden)
	for n := range b {
		_, err := Parse(b[:n])
		require.ErrorIs(t, err, ErrAddress, "cut at %d", n)
		if n >= headerLen+crcLen { // the checksum must not be what saves us
			_, err = Parse(seal(b[:n]))
			whole := n == headerLen+crcLen || n == headerLen+crcLen+entryHeadLen+entryMinLen+2
			assert.Equal(t, whole, err == nil, "resealed at %d: only whole entries may remain", n)
		}
	}
	_, err := Parse(append(b, 0))
	require.ErrorIs(t, err, ErrAddress)
}

func TestParseEveryBitFlip(t *testing.T) {
	b := encode(t, golden)
	for i := range len(b) * 8 {
		b[i/8] ^= 1 << (i % 8)
		_, err := Parse(b)
		require.ErrorIs(t, err, ErrAddress, "bit %d", i)
		b[i/8] ^= 1 << (i % 8)
	}
}

func TestParseRefusalsByName(t *testing.T) {
	set := func(at int, v ...byte) func([]byte) []byte {
		return func(b []byte) []byte { copy(b[at:], v); return seal(b) }
	}
	for _, c := range []struct {
		name   string
		damage func([]byte) []byte
		says   string
	}{
		{"empty", func([]byte) []byte { return nil }, "0 bytes, at least 64"},
		{"magic", set(0, 'U', 'C', 'X', 0), `starts with "UCX\x00"`},
		{"too long", func(b []byte) []byte { return seal(append(b, make([]byte, MaxAddress)...)) }, "at most 2048"},
		{"joined", func(b []byte) []byte { return append(b, b...) }, "length field 102, but 204 bytes"},
		{"checksum", func(b []byte) []byte { b[20]++; return b }, "damaged"},
		{"entry beyond the end", set(headerLen+3, 200), "an entry of 200 bytes, 33 left (entry 0)"},
		{"entry too short", set(headerLen+3, 3), "an entry of 3 bytes, at least 9"},
		{"device part beyond the entry", set(headerLen+entryHeadLen+attrLen, 9), "whose device part has 9"},
		{"rest too short for an entry", set(headerLen+3, 11+20), "2 bytes left for an entry"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse(c.damage(encode(t, golden)))
			require.ErrorIs(t, err, ErrAddress)
			assert.ErrorContains(t, err, c.says)
		})
	}
}

func TestParseKeepsUnknownTransports(t *testing.T) {
	v := golden
	v.Entries = append([]Entry{{Transport: 999, Addr: uct.Address{Device: []byte{}, Iface: []byte("?")}}}, golden.Entries...)
	got, err := Parse(encode(t, v))
	require.NoError(t, err)
	assert.Equal(t, v, got)
}

func TestParseDoesNotShareCapacity(t *testing.T) {
	b := encode(t, golden)
	v, err := Parse(b)
	require.NoError(t, err)
	_ = append(v.Entries[1].Addr.Device, "overwrite"...)
	assert.Equal(t, encode(t, golden), b)
}

type fakeIface struct {
	device, iface string
	refuse        map[string]string // iface part: reason
}

func (f fakeIface) DeviceAddress(b []byte) []byte { return append(b, f.device...) }
func (f fakeIface) Address(b []byte) []byte       { return append(b, f.iface...) }

func (f fakeIface) Reachable(a uct.Address) (bool, string) {
	why, no := f.refuse[string(a.Iface)]
	return !no, why
}

func TestBuildTellsDomains(t *testing.T) {
	local := []LocalIface{
		{Info: uct.IfaceInfo{ID: uct.TransportUD, Kind: uct.DeviceNet}, Attr: &uct.IfaceAttr{}, Iface: fakeIface{device: "nic0", iface: "a"}, Domain: 0},
		{Info: uct.IfaceInfo{ID: uct.TransportShm, Kind: uct.DeviceShm}, Attr: &uct.IfaceAttr{}, Iface: fakeIface{device: "nic0", iface: "b"}, Domain: 1},
		{Info: uct.IfaceInfo{ID: uct.TransportRC, Kind: uct.DeviceNet}, Attr: &uct.IfaceAttr{}, Iface: fakeIface{device: "nic1", iface: "c"}, Domain: 2},
		{Info: uct.IfaceInfo{ID: uct.TransportRC, Kind: uct.DeviceNet}, Attr: &uct.IfaceAttr{Connect: uct.ConnectToEndpoint, DeviceAtomics: true}, Iface: fakeIface{device: "nic0", iface: "d"}, Domain: 0},
	}
	b, refused, err := Build(View{Host: golden.Host, Process: golden.Process, Worker: golden.Worker, Entries: make([]Entry, 9)}, local)
	require.NoError(t, err)
	require.Empty(t, refused)
	v, err := Parse(b)
	require.NoError(t, err)
	require.Len(t, v.Entries, 4)
	var got []string
	for _, e := range v.Entries {
		got = append(got, string(e.Addr.Iface)+string('0'+rune(e.Device)))
	}
	assert.Equal(t, "a0 b1 c2 d0", strings.Join(got, " "))
	assert.Equal(t, ConnectsEndpoints|DeviceAtomics, v.Entries[3].Attr.Features)
	assert.Equal(t, [3]uct.UUID{golden.Host, golden.Process, golden.Worker}, [3]uct.UUID{v.Host, v.Process, v.Worker})
}

// A worker with more ifaces than an address holds is reached by the first of them.
func TestBuildLeavesOutWhatFindsNoRoom(t *testing.T) {
	var local []LocalIface
	for i := range 40 {
		name := fmt.Sprintf("nic%d:1", i)
		local = append(local, localNet("rc", uct.TransportRC, name, &rcAttr))
		local[i].Iface = fakeIface{device: strings.Repeat("d", 34), iface: strings.Repeat("i", 36)}
	}
	b, refused, err := Build(View{}, local)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(b), MaxAddress)
	v, err := Parse(b)
	require.NoError(t, err)
	require.Len(t, v.Entries, 23)
	require.Len(t, refused, 17)
	assert.Equal(t, "rc/nic23:1: the worker's address has no room for its 84 bytes; UCX_NET_DEVICES leaves others out", refused[0].String())
}

func FuzzParse(f *testing.F) {
	f.Add(encode(f, golden), false)
	f.Add(encode(f, View{}), true)
	f.Add([]byte(addressMagic), true)
	f.Fuzz(func(t *testing.T, b []byte, repair bool) {
		if repair && len(b) >= headerLen+crcLen && len(b) <= MaxAddress {
			copy(b, addressMagic+"\x02")
			b = seal(b)
		}
		v, err := Parse(b)
		if err != nil {
			require.ErrorIs(t, err, ErrAddress)
			return
		}
		assert.Equal(t, b, encode(t, v))
		var table Table
		p, err := table.Add(b)
		require.NoError(t, err)
		assert.Equal(t, v, table.View(p))
	})
}
