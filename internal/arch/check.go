package arch

// Check holds the packages of a module to every rule and gives the faults in
// the order of the packages.
func Check(module string, pkgs []*Package) []Fault {
	var faults []Fault
	for _, p := range pkgs {
		faults = append(faults, checkImports(p, module, Layers)...)
		faults = append(faults, checkPackage(p)...)
	}
	return faults
}
