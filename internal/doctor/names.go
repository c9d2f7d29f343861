package doctor

// FoundFenced names what keeps writes away because a command of maintenance has
// left its fence behind. It is found in the collections, not in the signals.
const FoundFenced = "fenced"

// Diagnoses returns the names of all that can be found to hold writes up, causes
// before what follows from them. They are headings of the runbook.
func Diagnoses() []string {
	names := []string{FoundFenced}
	for i := range diagnoses {
		names = append(names, diagnoses[i].name)
	}
	return names
}
