package main

import (
	"github.com/spf13/cobra"
)

// newJournal returns `brim journal`, for what is taken and not yet stored.
func newJournal(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "journal",
		Short: "Look at the journal of a daemon, or store what it holds",
		Args:  subcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newJournalReplay(p))
	return cmd
}
