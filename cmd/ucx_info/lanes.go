package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// purposes are UCX's short names of lane purposes.
var purposes = [wireup.NumPurposes]string{wireup.ForAM: "am", wireup.ForRMA: "rma", wireup.ForAMO: "amo"}

// lanes is a lane selection towards a peer, with the reasons.
type lanes struct {
	peer    string // for display
	local   *stage
	remote  wireup.View
	plan    wireup.Plan
	refused []uct.Refusal // by the local side, then by the peer, then by the selection
}

// chooseLanes selects lanes towards the peer of -P or --address. The caller closes local.
func (t *tool) chooseLanes(set *config.Set) (*lanes, error) {
	local, err := openStage(t.providers, set)
	if err != nil {
		return nil, err
	}
	l := &lanes{local: local, refused: slices.Clone(local.refused)}
	remote, err := t.peer(l, set)
	if err != nil {
		return nil, errors.Join(err, local.close())
	}
	l.remote = remote
	var refused []uct.Refusal
	l.plan, refused = wireup.Choose(local.ifaces, remote, t.wants()...)
	l.refused = append(l.refused, refused...)
	return l, nil
}

// wants returns the lane purposes for the features of -u.
func (t *tool) wants() []wireup.Purpose {
	f, _ := parseFeatures(t.features) // validated with the options
	var wants []wireup.Purpose
	for p, of := range [wireup.NumPurposes]ucp.Feature{
		wireup.ForAM: ucp.FeatureTag | ucp.FeatureAM, wireup.ForRMA: ucp.FeatureRMA, wireup.ForAMO: ucp.FeatureAtomics,
	} {
		if f == 0 || f&of != 0 {
			wants = append(wants, wireup.Purpose(p))
		}
	}
	return wants
}

// peer returns the address of the other side and sets its name in l.
func (t *tool) peer(l *lanes, set *config.Set) (wireup.View, error) {
	switch {
	case t.address != "":
		b, err := readAddress(t.address)
		if err != nil {
			return wireup.View{}, err
		}
		v, err := wireup.Parse(b)
		if err != nil {
			return v, fmt.Errorf("%s: %w", t.address, err)
		}
		l.peer = fmt.Sprintf("worker %x of %s", v.Worker[:4], t.address)
		return v, nil
	case t.placement == "intra":
		l.peer = "another worker of this host"
		other, err := openStage(t.providers, set)
		if err != nil {
			return wireup.View{}, err
		}
		l.local.closers = append(l.local.closers, other.close)
		v, err := other.address()
		l.refused = append(l.refused, other.refusedBeyond(l.local)...)
		return v, err
	default:
		l.peer = "the worker itself"
		v, err := l.local.address()
		l.refused = slices.Clone(l.local.refused)
		return v, err
	}
}

// readAddress reads a worker address from a file. It reads little more than the maximum length;
// the parser rejects a longer address.
func readAddress(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read worker address: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, wireup.MaxAddress+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read worker address: %w", err)
	}
	return b, nil
}

// lane is one connection to the peer and its uses.
type lane struct {
	local, remote int
	uses          []string
}

// chosen returns the lanes in use: each purpose's best candidate, once.
func (l *lanes) chosen() []lane {
	var out []lane
	for p := range wireup.NumPurposes {
		c, ok := l.plan.Best(p)
		if !ok {
			continue
		}
		found := false
		for i := range out {
			if out[i].local == c.Local && out[i].remote == c.Remote {
				out[i].uses = append(out[i].uses, purposes[p])
				found = true
			}
		}
		if !found {
			out = append(out, lane{c.Local, c.Remote, []string{purposes[p]}})
		}
	}
	return out
}

// outranked returns the candidates that could serve but score below the best.
func (l *lanes) outranked() []refusal {
	var out []refusal
	for p := range wireup.NumPurposes {
		for i, c := range l.plan[p] {
			if i == 0 {
				continue
			}
			info, best := l.local.ifaces[c.Local].Info, l.plan[p][0]
			out = append(out, refusal{info.Transport, info.Device, fmt.Sprintf("%v: score %.0f, below %s with %.0f",
				p, c.Score, l.name(best.Local), best.Score)})
		}
	}
	return out
}

// name returns transport/device of a local iface.
func (l *lanes) name(local int) string {
	i := l.local.ifaces[local].Info
	return i.Transport + "/" + i.Device
}
