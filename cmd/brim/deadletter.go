package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/queue"
	"github.com/brim-telemetry/brim/pkg/telemetry"
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

// A letterReplay sends dead letters to a daemon, one request for each, so that each
// has an answer and an Idempotency-Key of its own: one that is sent twice,
// because the command ended before it noted the answer, is stored once.
type letterReplay struct {
	base   string // URL of the daemon
	stream string // empty: all
	ids    []string
	dryRun bool
	output *string
	caller *caller
	client *http.Client
	file   *queue.DeadLetterFile
}

func newDeadLetterReplay(p *process) *cobra.Command {
	var r letterReplay
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Send dead letters to a daemon again, and take out those that it accepts",
		Long: "Send dead letters to a daemon again, and take out those that it accepts.\n\n" +
			"A letter that the daemon refuses stays, with the refusal as its reason. One that MongoDB refuses\n" +
			"again is put aside by that daemon as a new letter, and the old one is taken out.",
		Example: "  brim deadletter replay --dry-run\n" +
			"  brim deadletter replay --stream machines\n" +
			"  brim deadletter replay --id sq7kzv2p4ua-17",
		Args: cobra.NoArgs,
	}
	file := lettersFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&r.base, "url", daemonURL(p), "`URL` of the daemon ("+daemon.EnvURL+")")
	flags.StringVar(&r.stream, "stream", "", "`NAME` of a stream; empty: all")
	flags.StringArrayVar(&r.ids, "id", nil, "`ID` of a letter; may be repeated; none: all")
	flags.BoolVar(&r.dryRun, "dry-run", false, "only say what would be sent")
	access := clientFlags(flags)
	r.output = outputFlag(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		base, err := url.Parse(r.base)
		if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
			return config.Usage(fmt.Errorf("--url: %q is not the URL of a daemon, like %s", config.MaskUser(r.base), localDaemon))
		}
		if r.caller, err = access(p); err != nil {
			return err
		}
		r.client = r.caller.client(time.Minute)
		if r.file, err = file(p); err != nil {
			return err
		}
		return r.run(cmd.Context(), p)
	}
	return cmd
}

// What can become of a letter.
const (
	letterPending  = "pending"       // not sent
	letterAccepted = "accepted"      // and taken out
	letterRefused  = "refused"       // and kept, with the reason
	letterAgain    = "refused again" // by MongoDB: the daemon keeps it as a new letter
)

// A fate is what became of a letter.
type fate struct {
	ID     string `json:"id"`
	Stream string `json:"stream"`
	Fate   string `json:"fate"`
	Reason string `json:"reason,omitempty"`
}

// settleEvery is after how many answers the file is written. It is written as a
// whole, and 1,000 requests take about as long as a million lines.
const settleEvery = 1000

// run sends the chosen letters. What was answered is noted also when it ends early.
func (r *letterReplay) run(ctx context.Context, p *process) error {
	letters, err := r.choose(p)
	if err != nil {
		return err
	}
	fates := make([]fate, len(letters))
	for i, l := range letters {
		fates[i] = fate{ID: l.ID, Stream: l.Stream, Fate: letterPending}
	}
	if !r.dryRun {
		err = r.send(ctx, letters, fates)
	}
	return errors.Join(r.report(p, fates), err)
}

// choose returns the letters that are asked for.
func (r *letterReplay) choose(p *process) ([]queue.KeptLetter, error) {
	letters, err := readLetters(p, r.file, r.stream)
	if err != nil || len(r.ids) == 0 {
		return letters, err
	}
	for _, id := range r.ids {
		if !slices.ContainsFunc(letters, func(l queue.KeptLetter) bool { return l.ID == id }) {
			return nil, config.Usage(fmt.Errorf("--id: there is no letter %q in %s", id, r.file.Path))
		}
	}
	return slices.DeleteFunc(letters, func(l queue.KeptLetter) bool { return !slices.Contains(r.ids, l.ID) }), nil
}

// send sends letter after letter until one has no answer.
func (r *letterReplay) send(ctx context.Context, letters []queue.KeptLetter, fates []fate) error {
	outcomes := make(map[string]queue.Outcome)
	for i, l := range letters {
		told, reason, err := r.post(ctx, l)
		if err != nil {
			return errors.Join(err, r.file.Settle(outcomes))
		}
		fates[i].Fate, fates[i].Reason = told, reason
		outcomes[l.ID] = queue.Outcome{Gone: told != letterRefused, Reason: reason}
		if len(outcomes) == settleEvery {
			if err := r.file.Settle(outcomes); err != nil {
				return err
			}
			clear(outcomes)
		}
	}
	return r.file.Settle(outcomes)
}

// post sends one letter. An error means that the daemon said nothing about the
// letter itself.
func (r *letterReplay) post(ctx context.Context, l queue.KeptLetter) (told, reason string, err error) {
	// Waiting for MongoDB shows whether it refuses the reading again.
	address := strings.TrimSuffix(r.base, "/") + "/v1/streams/" + url.PathEscape(l.Stream) + "/readings?ack=stored"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(l.Reading))
	if err != nil {
		return "", "", fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", "deadletter-"+l.ID)
	resp, err := r.client.Do(req)
	if err != nil {
		return "", "", explainCall(r.base, "--url", fmt.Errorf("send letter %s: %w", l.ID, err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", "", fmt.Errorf("read the daemon's answer to letter %s: %w", l.ID, err)
	}
	if told, reason, err = judge(l, resp.StatusCode, body); err != nil {
		err = fmt.Errorf("%w%s", err, r.caller.hint(resp.StatusCode))
	}
	return told, reason, err
}

// judge says what an answer means for the letter.
func judge(l queue.KeptLetter, status int, body []byte) (told, reason string, err error) {
	var said struct {
		Code, Message string
		Errors        []struct{ Code, Message string }
	}
	// What is no JSON says nothing; the status still does.
	_ = json.Unmarshal(body, &said)
	if len(said.Errors) > 0 {
		said.Code, said.Message = said.Errors[0].Code, said.Errors[0].Message
	}
	reason = said.Code + ": " + said.Message
	switch status {
	case http.StatusOK, http.StatusAccepted:
		return letterAccepted, "", nil
	case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge:
		if said.Code == "" {
			break // not a daemon's answer
		}
		if said.Code == string(telemetry.StoreRefused) {
			return letterAgain, reason, nil
		}
		return letterRefused, reason, nil
	}
	if said.Code == "" {
		return "", "", fmt.Errorf("the daemon answered letter %s with %d %s without saying why; is this its --http-addr?", l.ID, status, http.StatusText(status))
	}
	return "", "", fmt.Errorf("the daemon does not take letter %s now, send it again later: %s (HTTP %d)", l.ID, reason, status)
}

// A letterReplayed is the result of `brim deadletter replay`.
type letterReplayed struct {
	Accepted     int    `json:"accepted"`
	Refused      int    `json:"refused"`
	RefusedAgain int    `json:"refused_again"`
	Pending      int    `json:"pending"`
	Letters      []fate `json:"letters"`
}

// report prints what became of the letters.
func (r *letterReplay) report(p *process, fates []fate) error {
	sum := letterReplayed{Letters: fates}
	for _, f := range fates {
		switch f.Fate {
		case letterAccepted:
			sum.Accepted++
		case letterRefused:
			sum.Refused++
		case letterAgain:
			sum.RefusedAgain++
		default:
			sum.Pending++
		}
	}
	if *r.output == "json" {
		return printJSON(p.stdout, sum)
	}
	var text strings.Builder
	for _, f := range fates {
		line := f.ID + " " + f.Fate
		if f.Reason != "" {
			line += ": " + f.Reason
		}
		text.WriteString(printable(line) + "\n")
	}
	fmt.Fprintf(&text, "accepted %d, refused %d, refused again by MongoDB %d, not sent %d\n", sum.Accepted, sum.Refused, sum.RefusedAgain, sum.Pending)
	_, err := io.WriteString(p.stdout, text.String())
	return err
}
