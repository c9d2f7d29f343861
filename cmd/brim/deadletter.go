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
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/internal/mqtt"
	"github.com/brim-telemetry/brim/internal/queue"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// newDeadLetter returns `brim deadletter`, for readings that MongoDB refused for their content
// and MQTT messages that Brim refused:
//
//	<data-dir>/dead-letters.ndjson ─┬─ list ───▶ stdout
//	        ▲                       └─ replay ─▶ POST /v1/streams/STREAM/readings
//	        └──── what was refused again ◀─────────┘
func newDeadLetter(p *process) *cobra.Command {
	return newGroup("deadletter", "List readings that could not be stored and MQTT messages that were refused, or send readings again", newDeadLetterList(p), newDeadLetterReplay(p))
}

// A letterFile is the file of dead letters, and the stream whose letters are selected.
type letterFile struct {
	*queue.DeadLetterFile
	stream string // empty: all
}

// letterFlags adds the flags that locate the file. Call the result after the flags are parsed.
func letterFlags(cmd *cobra.Command) func(*process) (*letterFile, error) {
	load := settingFlags(cmd.Flags(), [2]string{"data-dir"})
	stream := cmd.Flags().String("stream", "", "`NAME` of a stream; empty: all")
	return func(p *process) (*letterFile, error) {
		c, err := load(p)
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(c.DataDir); err != nil {
			return nil, fmt.Errorf("--data-dir: %w; give the data-dir of a daemon", err)
		}
		return &letterFile{&queue.DeadLetterFile{Path: filepath.Join(c.DataDir, queue.DeadLettersName)}, *stream}, nil
	}
}

// read returns the letters, and names invalid lines on stderr.
func (f *letterFile) read(p *process) ([]queue.KeptLetter, error) {
	letters, broken, err := f.Read()
	if err != nil {
		return nil, err
	}
	for _, b := range broken {
		_, _ = fmt.Fprintf(p.stderr, "%s, line %d: %s\n", f.Path, b.Number, b.Err)
	}
	return slices.DeleteFunc(letters, func(l queue.KeptLetter) bool { return f.stream != "" && l.Stream != f.stream }), nil
}

func newDeadLetterList(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Print the readings that MongoDB refused for their content, or the MQTT messages that Brim refused, and why",
		Example: "  brim deadletter list\n" +
			"  brim deadletter list --stream machines --output json\n" +
			"  brim deadletter list --messages --output json",
		Args: noArgs,
	}
	open := letterFlags(cmd)
	var limit int
	flagAdder(cmd.Flags())("limit", "1000", "N", "letters to print, the oldest first; 0: all", config.Count(&limit, 0, math.MaxInt32))
	messages := cmd.Flags().Bool("messages", false, "print refused MQTT messages instead, with their topics and payloads")
	output := outputFlag(cmd, "text", "json")
	cmd.RunE = func(*cobra.Command, []string) error {
		f, err := open(p)
		if err != nil {
			return err
		}
		if *messages {
			if f.stream != "" {
				return config.Usage(errors.New("--stream and --messages exclude each other: a refused message may belong to no stream; its topic is in the list"))
			}
			path := filepath.Join(filepath.Dir(f.Path), mqtt.LettersName)
			messages, err := (&ingest.LetterFile{Path: path}).Read()
			if err != nil {
				return err
			}
			messages = upTo(limit, messages, p.stderr, path, "refused message")
			return p.print(*output, messages, messagesText(messages))
		}
		letters, err := f.read(p)
		if err != nil {
			return err
		}
		letters = upTo(limit, letters, p.stderr, f.Path, "dead letter")
		return p.print(*output, letters, lettersText(letters))
	}
	return cmd
}

// upTo returns the first letters of a file; 0: all. It reports if there are more, or none.
func upTo[L any](limit int, letters []L, w io.Writer, path, what string) []L {
	if more := len(letters) - limit; limit > 0 && more > 0 {
		_, _ = fmt.Fprintf(w, "%s left out; --limit 0 prints all\n", plural(more, "more "+what))
		letters = letters[:limit]
	} else if len(letters) == 0 {
		_, _ = fmt.Fprintf(w, "%s contains no %ss\n", path, what)
	}
	return append([]L{}, letters...) // a list in JSON, even if empty
}

// messagesText returns a table of refused messages.
func messagesText(letters []ingest.Letter) string {
	var rows [][]string
	for _, l := range letters {
		rows = append(rows, []string{l.At, l.Subscription, l.Topic, telemetry.Quote(l.Payload), l.Reason})
	}
	return tableText([]string{"at", "subscription", "topic", "payload", "reason"}, rows)
}

// lettersText returns a table of dead letters.
func lettersText(letters []queue.KeptLetter) string {
	var rows [][]string
	for _, l := range letters {
		var reading struct{ SensorID, TS string }
		if err := json.Unmarshal(l.Reading, &reading); err != nil {
			reading.SensorID = "(unreadable)" // only the reading's own keys can have another type
		}
		rows = append(rows, []string{l.ID, l.At, l.Stream, reading.SensorID, reading.TS, l.Reason})
	}
	return tableText([]string{"id", "at", "stream", "sensor", "ts", "reason"}, rows)
}

// A letterReplay sends dead letters to a daemon, one per request, so that each has its own
// response and Idempotency-Key. A letter sent twice, because the command ended before recording
// the response, is stored once.
type letterReplay struct {
	*letterFile
	ids    []string // none: all
	remote *remote
}

func newDeadLetterReplay(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Send dead letters to a daemon again, and remove those that it accepts",
		Long: "Send dead letters to a daemon again, and remove those that it accepts.\n\n" +
			"A letter that the daemon refuses stays, with the refusal as its reason. One that MongoDB refuses\n" +
			"again becomes a new letter of that daemon, and the old one is removed.",
		Example: "  brim deadletter replay --dry-run\n" +
			"  brim deadletter replay --stream machines\n" +
			"  brim deadletter replay --id sq7kzv2p4ua-17",
		Args: noArgs,
	}
	var r letterReplay
	open := letterFlags(cmd)
	cmd.Flags().StringArrayVar(&r.ids, "id", nil, "`ID` of a dead letter; may be repeated; none: all")
	dryRun := cmd.Flags().Bool("dry-run", false, "only say what would be sent")
	output := outputFlag(cmd, "text", "json")
	withRemote(cmd, p, func(ctx context.Context, to *remote, _ []string) (err error) {
		r.remote = to
		if r.letterFile, err = open(p); err != nil {
			return err
		}
		letters, err := r.choose(p)
		if err != nil {
			return err
		}
		results := make([]letterResult, len(letters))
		for i, l := range letters {
			results[i] = letterResult{ID: l.ID, Stream: l.Stream, Fate: letterPending}
		}
		if !*dryRun {
			err = r.send(ctx, letters, results)
		}
		return errors.Join(p.printLetterResults(*output, results), err)
	})
	return cmd
}

// Results of sending a letter.
const (
	letterPending  = "pending"       // not sent
	letterAccepted = "accepted"      // and removed
	letterRefused  = "refused"       // and kept, with the reason
	letterAgain    = "refused again" // by MongoDB; the daemon keeps it as a new letter
)

// A letterResult is the result of sending a letter.
type letterResult struct {
	ID     string `json:"id"`
	Stream string `json:"stream"`
	Fate   string `json:"fate"`
	Reason string `json:"reason,omitempty"`
}

// choose returns the selected letters.
func (r *letterReplay) choose(p *process) ([]queue.KeptLetter, error) {
	letters, err := r.read(p)
	if err != nil || len(r.ids) == 0 {
		return letters, err
	}
	for _, id := range r.ids {
		if !slices.ContainsFunc(letters, func(l queue.KeptLetter) bool { return l.ID == id }) {
			return nil, config.Usage(fmt.Errorf("--id: there is no letter %q in %s", id, r.Path))
		}
	}
	return slices.DeleteFunc(letters, func(l queue.KeptLetter) bool { return !slices.Contains(r.ids, l.ID) }), nil
}

// settleEvery is the number of responses after which the file is rewritten. 1,000 requests take
// about as long as writing a million lines.
const settleEvery = 1000

// send sends the letters until one gets no response. It always records the responses.
func (r *letterReplay) send(ctx context.Context, letters []queue.KeptLetter, results []letterResult) error {
	outcomes := make(map[string]queue.Outcome)
	for i, l := range letters {
		outcome, reason, err := r.post(ctx, l)
		if err != nil {
			return errors.Join(err, r.Settle(outcomes))
		}
		results[i].Fate, results[i].Reason = outcome, reason
		outcomes[l.ID] = queue.Outcome{Gone: outcome != letterRefused, Reason: reason}
		if len(outcomes) == settleEvery {
			if err := r.Settle(outcomes); err != nil {
				return err
			}
			clear(outcomes)
		}
	}
	return r.Settle(outcomes)
}

// post sends one letter. An error means that the response was not about the letter itself.
func (r *letterReplay) post(ctx context.Context, l queue.KeptLetter) (outcome, reason string, err error) {
	// Waiting for MongoDB shows whether it refuses the reading again.
	resp, err := r.remote.ask(ctx, http.MethodPost, "/v1/streams/"+url.PathEscape(l.Stream)+"/readings?ack=stored",
		map[string]string{"Content-Type": "application/json", "Idempotency-Key": "deadletter-" + l.ID}, bytes.NewReader(l.Reading))
	if err != nil {
		return "", "", fmt.Errorf("send letter %s: %w", l.ID, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", "", fmt.Errorf("read the daemon's answer to letter %s: %w", l.ID, err)
	}
	if outcome, reason, err = interpretAnswer(l, resp.StatusCode, body); err != nil {
		err = fmt.Errorf("%w%s", err, r.remote.tokenHint(resp.StatusCode))
	}
	return outcome, reason, err
}

// interpretAnswer returns what a response means for the letter.
func interpretAnswer(l queue.KeptLetter, status int, body []byte) (outcome, reason string, err error) {
	var said struct {
		Code, Message string
		Errors        []struct{ Code, Message string }
	}
	_ = json.Unmarshal(body, &said) // if it is not JSON, only the status counts
	if len(said.Errors) > 0 {
		said.Code, said.Message = said.Errors[0].Code, said.Errors[0].Message
	}
	ofSensor := status == http.StatusForbidden && said.Code == "sensor_forbidden" // others may be allowed
	reason = said.Code + ": " + said.Message
	definite := ofSensor || slices.Contains([]int{http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge}, status)
	switch {
	case status == http.StatusOK, status == http.StatusAccepted:
		return letterAccepted, "", nil
	case said.Code == "":
		return "", "", fmt.Errorf("the daemon answered letter %s with %d %s without saying why; is this its --http-addr?", l.ID, status, http.StatusText(status))
	case definite && said.Code == string(telemetry.StoreRefused):
		return letterAgain, reason, nil
	case definite:
		return letterRefused, reason, nil
	}
	return "", "", fmt.Errorf("the daemon does not accept letter %s now, send it again later: %s (HTTP %d)", l.ID, reason, status)
}

// A letterReplayed is the result of `brim deadletter replay`.
type letterReplayed struct {
	Accepted     int            `json:"accepted"`
	Refused      int            `json:"refused"`
	RefusedAgain int            `json:"refused_again"`
	Pending      int            `json:"pending"`
	Letters      []letterResult `json:"letters"`
}

// printLetterResults prints the results.
func (p *process) printLetterResults(output string, results []letterResult) error {
	count := make(map[string]int)
	var text strings.Builder
	for _, f := range results {
		count[f.Fate]++
		line := f.ID + " " + f.Fate
		if f.Reason != "" {
			line += ": " + f.Reason
		}
		text.WriteString(printable(line) + "\n")
	}
	r := letterReplayed{count[letterAccepted], count[letterRefused], count[letterAgain], count[letterPending], results}
	fmt.Fprintf(&text, "accepted %d, refused %d, refused again by MongoDB %d, not sent %d\n", r.Accepted, r.Refused, r.RefusedAgain, r.Pending)
	return p.print(output, r, text.String())
}
