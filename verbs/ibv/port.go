//go:build linux && cgo && ibverbs

package ibv

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// Port returns the attributes of a port, and the GID and P_Key that it uses.
func (d *device) Port(n uint8) (verbs.PortAttr, error) {
	p, err := d.queryPort(n)
	if err != nil {
		return verbs.PortAttr{}, err
	}
	a := verbs.PortAttr{
		State: verbs.PortState(p.state), MaxMTU: verbs.MTU(p.max_mtu), ActiveMTU: verbs.MTU(p.active_mtu),
		GIDs: int(p.gid_tbl_len), PKeys: int(p.pkey_tbl_len), Link: verbs.LinkLayer(p.link_layer), MaxMessage: uint32(p.max_msg_sz),
		TrafficClass: d.conf.TrafficClass, SL: d.conf.SL,
	}
	if a.Link != verbs.LinkEthernet { // a RoCE port has no LID
		a.LID = uint16(p.lid)
		return a, nil
	}
	if a.GIDIndex, err = d.chooseGID(n); err != nil {
		return a, err
	}
	index, err := d.choosePKey(n, a.PKeys)
	a.PKeyIndex = uint16(index)
	return a, err
}

func (d *device) queryPort(n uint8) (p C.struct_ibv_port_attr, err error) {
	if err := d.checkPort(n); err != nil {
		return p, err
	}
	if err := returned(C.goucx_query_port(d.c, C.uint8_t(n), &p)); err != nil {
		return p, fmt.Errorf("query port %d of RDMA device %q: %w", n, d.info.Name, err)
	}
	return p, nil
}

func (d *device) checkPort(n uint8) error {
	if n == 0 || int(n) > d.attr.Ports {
		return fmt.Errorf("port %d of RDMA device %q, which has ports 1 to %d: %w", n, d.info.Name, d.attr.Ports, ucs.ErrInvalid)
	}
	return nil
}

// GID returns an entry of a port's table. An unused entry is the zero GID.
func (d *device) GID(port uint8, index int) (verbs.GID, error) {
	e, err := d.gidEntry(port, index)
	if err != nil {
		return verbs.GID{}, err
	}
	return verbs.GID(e.gid), nil
}

func (d *device) gidEntry(port uint8, index int) (e C.struct_ibv_gid_entry, err error) {
	p, err := d.queryPort(port)
	if err != nil {
		return e, err
	}
	if index < 0 || index >= int(p.gid_tbl_len) {
		return e, fmt.Errorf("gid %d of RDMA device %q, whose table has %d: %w", index, d.info.Name, p.gid_tbl_len, ucs.ErrInvalid)
	}
	switch code := C.goucx_query_gid(d.c, C.uint32_t(port), C.uint32_t(index), &e); code {
	case 0, C.int(unix.ENODATA):
		return e, nil
	default:
		return e, fmt.Errorf("gid %d of RDMA device %q: %w", index, d.info.Name, returned(code))
	}
}

// gidTable returns the used entries of a port's table.
func (d *device) gidTable(port uint8) ([]C.struct_ibv_gid_entry, error) {
	p, err := d.queryPort(port)
	if err != nil {
		return nil, err
	}
	es := make([]C.struct_ibv_gid_entry, max(1, int(p.gid_tbl_len)*d.attr.Ports))
	n := C.goucx_query_gids(d.c, &es[0], C.uint32_t(len(es)))
	if n < 0 {
		return nil, fmt.Errorf("gids of RDMA device %q: %w", d.info.Name, returned(n))
	}
	own := es[:0]
	for _, e := range es[:n] {
		if e.port_num == C.uint32_t(port) {
			own = append(own, e)
		}
	}
	return own, nil
}

// chooseGID returns the index of the GID that a port uses: that of the settings, or the best one.
func (d *device) chooseGID(port uint8) (int, error) {
	if d.conf.HasGIDIndex {
		g, err := d.GID(port, d.conf.GIDIndex)
		if err == nil && g == (verbs.GID{}) {
			err = fmt.Errorf("gid %d of RDMA device %q is not in use: choose another UCX_IB_GID_INDEX, or auto: %w", d.conf.GIDIndex, d.info.Name, ucs.ErrInvalid)
		}
		return d.conf.GIDIndex, err
	}
	es, err := d.gidTable(port)
	if err != nil {
		return 0, err
	}
	list := make([]gidEntry, len(es))
	for i, e := range es {
		list[i] = gidEntry{gid: verbs.GID(e.gid), index: int(e.gid_index), kind: gidKind(e.gid_type)}
	}
	if e, ok := bestGID(list); ok {
		return e.index, nil
	}
	return 0, fmt.Errorf("%w: port %d of RDMA device %q: give its network interface an IP address and set it up, or set UCX_IB_GID_INDEX", ErrNoGID, port, d.info.Name)
}

// PKey returns an entry of a port's table.
func (d *device) PKey(port uint8, index int) (uint16, error) {
	p, err := d.queryPort(port)
	if err != nil {
		return 0, err
	}
	if index < 0 || index >= int(p.pkey_tbl_len) {
		return 0, fmt.Errorf("pkey %d of RDMA device %q, whose table has %d: %w", index, d.info.Name, p.pkey_tbl_len, ucs.ErrInvalid)
	}
	var k C.__be16
	if code, no := C.ibv_query_pkey(d.c, C.uint8_t(port), C.int(index), &k); code != 0 {
		return 0, fmt.Errorf("pkey %d of RDMA device %q: %w", index, d.info.Name, fault(no))
	}
	return bits.ReverseBytes16(uint16(k)), nil
}

// choosePKey returns the index of the P_Key of the settings, or of the first full one.
func (d *device) choosePKey(port uint8, n int) (int, error) {
	var errs []error
	for i := range n {
		k, err := d.PKey(port, i)
		if err != nil {
			errs = append(errs, err)
		}
		if want := d.conf.PKey; want == 0 && k&fullMember != 0 || want != 0 && k&^fullMember == want&^fullMember {
			return i, nil
		}
	}
	if d.conf.PKey == 0 {
		return 0, errors.Join(errs...)
	}
	return 0, errors.Join(fmt.Errorf("port %d of RDMA device %q has no pkey %#x: %w", port, d.info.Name, d.conf.PKey, ucs.ErrInvalid), errors.Join(errs...))
}
