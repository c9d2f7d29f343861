package doctor

// A Finding is one thing that the doctor has to say. Findings stand in the order
// in which they are to be acted on; of one cause there may be several, an action
// each.
type Finding struct {
	Name     string `json:"name"` // of the cause, as its heading in the runbook; the same in every version
	Kind     Kind   `json:"kind"`
	Class    Class  `json:"class"`    // how bad it is; a setting that costs without need is degrading
	Cause    string `json:"cause"`    // in a few words, as in "history store: …"
	Evidence string `json:"evidence"` // what was seen that shows it, with figures
	Action   string `json:"action"`   // what to do, with the command or the setting
	Cost     string `json:"cost"`     // of the action: restart, disk, latency, readings that wait
}

// A Kind says what a finding is about.
type Kind string

// The kinds of findings.
const (
	Slow    Kind = "slow"    // something holds writes up now; counts towards the class of the whole
	Setting Kind = "setting" // a setting costs without need, also when nothing is slow; does not count
	Unseen  Kind = "unseen"  // something could not be looked at; does not count
)
