package ibv

import (
	"github.com/goucx/goucx/verbs"
)

// gidKind is the protocol of a GID; the values are those of libibverbs.
type gidKind uint32

const (
	gidIB gidKind = iota
	gidRoCEv1
	gidRoCEv2
)

// gidEntry is a used entry of a port's table.
type gidEntry struct {
	gid   verbs.GID
	index int
	kind  gidKind
}

// bestGID returns the entry that a port uses: of RoCE v2; routable before link-local; IPv4 before
// IPv6, because more networks route it; the first one of these.
func bestGID(es []gidEntry) (best gidEntry, ok bool) {
	most := 0
	for _, e := range es {
		if r := e.rank(); r > most {
			best, ok, most = e, true, r
		}
	}
	return best, ok
}

// rank returns how well an entry serves; 0: it does not.
func (e *gidEntry) rank() int {
	a := e.gid.Addr()
	switch {
	case e.kind != gidRoCEv2 || a.IsUnspecified() || a.IsMulticast():
		return 0
	case a.IsLinkLocalUnicast():
		return 1
	case a.IsLoopback():
		return 2
	case a.Is6():
		return 3
	}
	return 4
}
