package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/queue"
)

// newDeadLetter returns `brim deadletter`, for readings that MongoDB refused for
// their content:
//
//	<data-dir>/dead-letters.ndjson ─┬─ list ───▶ stdout
//	        ▲                       └─ replay ─▶ POST /v1/streams/STREAM/readings
//	        └──── what was refused again ◀─────────┘
func newDeadLetter(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deadletter",
		Short: "List the readings that could not be stored, or send them again",
		Args:  subcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDeadLetterList(p), newDeadLetterReplay(p))
	return cmd
}

// lettersFlags adds the flags that say where the file is. The result is to be
// called when the flags are parsed.
func lettersFlags(cmd *cobra.Command) func(*process) (*queue.DeadLetterFile, error) {
	flags := cmd.Flags()
	flags.SortFlags = false
	dir := flags.String("data-dir", "", "`DIR` of the daemon's data (BRIM_DATA_DIR, or data-dir in the file) (default ./brim-data)")
	path := flags.String("config", "", "YAML `FILE` with the daemon's settings")
	return func(p *process) (*queue.DeadLetterFile, error) {
		s := daemon.Sources{Env: p.env, Path: *path}
		if flags.Changed("data-dir") {
			s.Flags = map[string]string{"data-dir": *dir}
		}
		c, err := s.Load()
		if err != nil {
			return nil, err
		}
		return &queue.DeadLetterFile{Path: filepath.Join(c.DataDir, queue.DeadLettersName)}, nil
	}
}

// readLetters returns the letters of one stream, or of all if it is empty. Lines
// that are no letters are named on stderr.
func readLetters(p *process, f *queue.DeadLetterFile, stream string) ([]queue.KeptLetter, error) {
	letters, broken, err := f.Read()
	if err != nil {
		return nil, err
	}
	for _, b := range broken {
		if _, err := fmt.Fprintf(p.stderr, "%s, line %d: %s\n", f.Path, b.Number, b.Err); err != nil {
			return nil, err
		}
	}
	if stream != "" {
		letters = slices.DeleteFunc(letters, func(l queue.KeptLetter) bool { return l.Stream != stream })
	}
	return letters, nil
}

func newDeadLetterList(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Print the readings that MongoDB refused for their content, and why",
		Example: "  brim deadletter list\n" +
			"  brim deadletter list --stream machines --output json",
		Args: cobra.NoArgs,
	}
	file := lettersFlags(cmd)
	stream := cmd.Flags().String("stream", "", "`NAME` of a stream; empty: all")
	limit, limitText := 1000, "1000"
	cmd.Flags().Var(&flagText{text: &limitText, kind: "N", set: func(s string) error {
		limitText = s
		return config.Count(&limit, 0, math.MaxInt32)(s)
	}}, "limit", "letters to print, the oldest first; 0: all")
	output := outputFlag(cmd, "text", "json")
	cmd.RunE = func(*cobra.Command, []string) error {
		f, err := file(p)
		if err != nil {
			return err
		}
		letters, err := readLetters(p, f, *stream)
		if err != nil {
			return err
		}
		more := 0
		if limit > 0 && len(letters) > limit {
			letters, more = letters[:limit], len(letters)-limit
		}
		if *output == "json" {
			err = printJSON(p.stdout, append([]queue.KeptLetter{}, letters...))
		} else {
			err = printLetters(p.stdout, letters)
		}
		if err != nil {
			return err
		}
		return noteOmitted(p, f, len(letters), more)
	}
	return cmd
}

// noteOmitted says on stderr what a list does not show.
func noteOmitted(p *process, f *queue.DeadLetterFile, printed, more int) error {
	var err error
	switch {
	case more > 0:
		_, err = fmt.Fprintf(p.stderr, "there are %d more letters; --limit 0 prints all\n", more)
	case printed == 0:
		_, err = fmt.Fprintf(p.stderr, "%s holds no such letters\n", f.Path)
	}
	return err
}

// printLetters writes a table.
func printLetters(w io.Writer, letters []queue.KeptLetter) error {
	if len(letters) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if _, err := fmt.Fprintln(table, "id\tat\tstream\tsensor\tts\treason"); err != nil {
		return err
	}
	for _, l := range letters {
		var reading struct {
			Sensor string `json:"sensorId"`
			Time   string `json:"ts"`
		}
		if err := json.Unmarshal(l.Reading, &reading); err != nil {
			reading.Sensor = "(unreadable)" // only the reading's own keys can be of another type
		}
		if _, err := fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n",
			printable(l.ID), printable(l.At), printable(l.Stream), printable(reading.Sensor), printable(reading.Time), printable(l.Reason)); err != nil {
			return err
		}
	}
	return table.Flush()
}
