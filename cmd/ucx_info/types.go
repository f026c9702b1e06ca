package main

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
)

// modulePath precedes the packages of goucx.
const modulePath = "github.com/goucx/goucx/"

// typeInfo prints -y: the sizes of goucx's structures by package, in UCX's form. It finds them from
// the objects of the API and from the domains and ifaces that open here.
func (t *tool) typeInfo() (err error) {
	set, err := t.contextSettings()
	if err != nil {
		return err
	}
	s, err := openStage(t.providers, set)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	f := typeFinder{}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[ucp.Context](), reflect.TypeFor[ucp.Worker](), reflect.TypeFor[ucp.Endpoint](),
		reflect.TypeFor[ucp.Request](), reflect.TypeFor[ucp.RemoteKey](), reflect.TypeFor[ucp.MemHandle](),
		reflect.TypeFor[ucp.Config](), reflect.TypeFor[ucp.Completion](), reflect.TypeFor[uct.IfaceAttr](),
		reflect.TypeFor[uct.DomainAttr](), reflect.TypeFor[uct.Desc](), reflect.TypeFor[uct.Event](),
		reflect.TypeFor[uct.Vec](), reflect.TypeFor[uct.Address](), reflect.TypeFor[verbs.SendWR](),
		reflect.TypeFor[verbs.RecvWR](), reflect.TypeFor[verbs.WC](), reflect.TypeFor[verbs.DeviceAttr](),
		reflect.TypeFor[verbs.PortAttr](), reflect.TypeFor[config.Set](),
	} {
		f.find(typ)
	}
	for _, d := range s.domains {
		f.find(reflect.TypeOf(d.Domain))
	}
	for _, i := range s.ifaces {
		f.find(reflect.TypeOf(i.Iface))
	}
	f.find(reflect.TypeOf(soft.New(transports.SoftConfig(set, nil))))
	t.typeSizes(f)
	return nil
}

// typeFinder collects the named structures of goucx with their sizes in bytes, by package.
type typeFinder map[string]map[string]uintptr

// find adds typ and the types that it refers to.
func (f typeFinder) find(typ reflect.Type) {
	if pkg, ours := strings.CutPrefix(typ.PkgPath(), modulePath); ours && typ.Kind() == reflect.Struct {
		if _, known := f[pkg][typ.Name()]; known {
			return
		}
		if f[pkg] == nil {
			f[pkg] = map[string]uintptr{}
		}
		f[pkg][typ.Name()] = typ.Size()
	} else if typ.PkgPath() != "" && !ours {
		return // a type of another module
	}
	switch typ.Kind() {
	case reflect.Map:
		f.find(typ.Key())
		f.find(typ.Elem())
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Chan:
		f.find(typ.Elem())
	case reflect.Struct:
		for field := range typ.Fields() {
			f.find(field.Type)
		}
	default: // holds no structure
	}
}

// typeSizes prints the types, those of the API's packages first.
func (t *tool) typeSizes(f typeFinder) {
	packages := make([]string, 0, len(f))
	for pkg := range f {
		packages = append(packages, pkg)
	}
	slices.Sort(packages)
	for _, pkg := range packages {
		fmt.Fprintf(&t.out, "%s:\n", strings.ToUpper(pkg))
		prefix := pkg[strings.LastIndex(pkg, "/")+1:]
		names := make([]string, 0, len(f[pkg]))
		for name := range f[pkg] {
			if !strings.ContainsAny(name, "[") { // an instance of a generic type
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			text := fmt.Sprintf("sizeof(%s.%s) = ", prefix, name)
			fmt.Fprintf(&t.out, "    %s%s %-6d\n", text, strings.Repeat(".", max(39-len(text), 0)), f[pkg][name])
		}
		t.out.WriteString("\n")
	}
}
