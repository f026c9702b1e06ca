package arch

import (
	"fmt"
	"go/ast"
	"slices"
)

// component is a struct of package ucp that a worker's thread has. Its fields are touched in its
// own files, where it is set up, and in the places of Touches.
type component struct {
	Field, Type string   // of the thread
	Files       []string // in folder ucp
	Touches     []touch
}

// touch is an access from another file, with its reason.
type touch struct{ File, Field, Reason string }

// setUp are the files that create a worker.
var setUp = []string{"worker.go", "config.go"}

var components = []component{
	{"owner", "progressOwner", []string{"progress_owner.go", "progress_waiter.go", "progress.go", "sleep.go", "thread.go", "wait_list.go"}, []touch{
		{"request_post.go", "mustWake", "a posted operation ends a sleep, in one store"},
		{"request_recv.go", "state", "a wait takes the free ownership"},
		{"am_callback.go", "state", "a close inside a callback looks for an owner"},
		{"live.go", "mu", "the reader of statistics tries the lock and never waits"},
	}},
	{"callbacks", "callbacks", []string{"callbacks.go", "am_callback.go"}, []touch{
		{"iface.go", "failures", "each handler ends with this check"},
		{"fail.go", "failures", "a failed endpoint adds its call"},
		{"sleep.go", "running", "a callback must not sleep"},
	}},
	{"matching", "matching", []string{"tag.go", "tag_recv.go", "request_recv.go", "rndv_recv.go", "cancel.go", "flow_control.go", "reassembly.go"}, []touch{
		{"iface.go", "budget", "each eager message checks the budget"},
		{"iface.go", "posted", "the fast path of receives"},
		{"am_rndv.go", "rejecting", "a closing worker rejects an RTS at once"},
		{"abort.go", "posted", "an abort ends the receives tied to its endpoint"},
		{"fail.go", "posted", "a failed endpoint ends the receives tied to it"},
		{"worker_close.go", "posted", "a closing worker ends all receives"},
		{"live.go", "posted", "a summary reads it"},
		{"live.go", "unexpQueue", "a summary reads it"},
		{"live.go", "budget", "a summary reads it"},
	}},
	{"polling", "polling", []string{"progress.go", "sleep.go", "wait.go"}, []touch{
		{"callbacks.go", "moreWork", "a due callback ends the short pass, in one store"},
		{"callbacks.go", "active", "the last callback restores the short pass"},
		{"worker_close.go", "sleeper", "a closing context waits with several workers at once"},
		{"fail.go", "moreWork", "a due callback ends the short pass, in one store"},
	}},
}

// checkComponents checks which files of package ucp touch a component's fields.
func checkComponents(p *Package) []Fault {
	var faults []Fault
	if p.Path != "ucp" {
		return nil
	}
	for _, c := range components {
		fields := fieldsOf(p, c.Type)
		for _, f := range p.Files {
			if f.IsTest() || slices.Contains(c.Files, f.Base()) || slices.Contains(setUp, f.Base()) {
				continue
			}
			ast.Inspect(f.Syntax, func(n ast.Node) bool {
				field, _ := n.(*ast.SelectorExpr)
				if field == nil || !slices.Contains(fields, field.Sel.Name) {
					return true
				}
				if x, ok := field.X.(*ast.SelectorExpr); !ok || x.Sel.Name != c.Field {
					return true
				}
				if !slices.ContainsFunc(c.Touches, func(t touch) bool { return t.File == f.Base() && t.Field == field.Sel.Name }) {
					faults = append(faults, Fault{f.Name, fmt.Sprintf("it touches %s.%s: call a method of %s, or give the reason in internal/arch/components.go", c.Field, field.Sel.Name, c.Type)})
				}
				return true
			})
		}
	}
	return faults
}

// fieldsOf returns the names of a struct's fields.
func fieldsOf(p *Package, name string) (fields []string) {
	for _, f := range p.Files {
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			if t, ok := n.(*ast.TypeSpec); ok && t.Name.Name == name {
				if s, ok := t.Type.(*ast.StructType); ok {
					for _, fl := range s.Fields.List {
						for _, id := range fl.Names {
							fields = append(fields, id.Name)
						}
					}
				}
			}
			return true
		})
	}
	return fields
}
