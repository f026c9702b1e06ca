package arch

// Check checks the packages of a module against every rule and returns the faults in the order of
// the packages.
func Check(module string, pkgs []*Package) []Fault {
	var faults []Fault
	tests := testFuncs(pkgs)
	for _, p := range pkgs {
		faults = append(faults, checkImports(p, module, Layers)...)
		faults = append(faults, checkPackage(p)...)
		faults = append(faults, checkComponents(p)...)
		for _, f := range p.Files {
			faults = append(faults, checkHot(f, tests)...)
		}
	}
	return faults
}
