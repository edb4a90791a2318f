// Package course is what the contestants in Go do alike: the same words, the same lines and the same two workloads as those in Rust.
package course

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Lock is taken and given back, again and again.
type Lock interface {
	// Take waits as long as it takes, and gives what gives it back.
	Take() (give func(), err error)
}

// Order is a workload and its numbers.
type Order struct {
	Workload string
	values   map[string]string
}

type report struct {
	Seconds float64            `json:"seconds"`
	Counts  []uint64           `json:"counts"`
	Nanos   []int64            `json:"nanos"`
	Turns   [][4]int64         `json:"turns"`
	Facts   map[string]float64 `json:"facts"`
}

// ReadOrder is what the command line says.
func ReadOrder() Order {
	order := Order{Workload: os.Args[1], values: map[string]string{}}
	for _, word := range os.Args[2:] {
		key, value, _ := strings.Cut(word, "=")
		order.values[key] = value
	}
	return order
}

func (o Order) number(key string, otherwise float64) float64 {
	text, found := o.values[key]
	if !found {
		return otherwise
	}
	number, err := strconv.ParseFloat(text, 64)
	Must(err)
	return number
}

// Text is what was said of a key; nothing said means the empty text.
func (o Order) Text(key string) string { return o.values[key] }

// Addresses of the servers, as host:port.
func (o Order) Addresses() []string {
	urls := strings.Split(o.values["url"], ",")
	for i := range urls {
		urls[i] = strings.TrimSuffix(strings.TrimPrefix(urls[i], "redis://"), "/0")
	}
	return urls
}

// Race warms up, then runs a heat for every line of its input.
func Race(order Order, named func(name string) Lock) {
	tasks := int(order.number("tasks", 1))
	locks := make([]Lock, tasks)
	for task := range locks {
		name := order.values["name"]
		if order.Workload == "cycle" {
			name = fmt.Sprintf("%s:%d", name, task)
		}
		locks[task] = named(name)
	}
	till := openTill(order)
	heat := func(seconds float64) report {
		switch order.Workload {
		case "cycle":
			return cycle(locks, seconds)
		case "contend":
			return contend(locks, order, till, seconds)
		}
		panic("it has no " + order.Workload)
	}
	if warm := order.number("warm", 0); warm > 0 {
		heat(warm)
	}
	fmt.Println(`"ready"`)
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		line, err := json.Marshal(heat(order.number("seconds", 1)))
		Must(err)
		fmt.Println(string(line))
	}
}

func cycle(locks []Lock, seconds float64) report {
	start := now()
	until := start + int64(seconds*1e9)
	whole := all(locks, func(lock Lock, _ int64) (part report) {
		part.Counts = []uint64{0}
		for began := now(); began < until; {
			give, err := lock.Take()
			Must(err)
			give()
			ended := now()
			part.Nanos = append(part.Nanos, ended-began)
			part.Counts[0]++
			began = ended
		}
		return part
	})
	whole.Seconds = float64(now()-start) / 1e9
	step := len(whole.Nanos)/20000 + 1
	thin := whole.Nanos[:0]
	for i := 0; i < len(whole.Nanos); i += step {
		thin = append(thin, whole.Nanos[i])
	}
	whole.Nanos = thin
	return whole
}

// till is what the lock of the workload "hot name" protects: a counter on the server that is read and then written.
type till struct {
	stream net.Conn
	answer *bufio.Reader
	asking sync.Mutex
	key    string
	sold   atomic.Uint64
}

func openTill(order Order) *till {
	if order.Text("sell") == "" {
		return nil
	}
	stream, err := net.Dial("tcp", order.Addresses()[0])
	Must(err)
	return &till{stream: stream, answer: bufio.NewReader(stream), key: order.Text("name") + ":sold"}
}

func (t *till) sell() {
	sold, _ := strconv.Atoi(t.ask("GET", t.key))
	t.ask("SET", t.key, strconv.Itoa(sold+1))
	t.sold.Add(1)
}

func (t *till) ask(words ...string) string {
	request := fmt.Sprintf("*%d\r\n", len(words))
	for _, word := range words {
		request += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	t.asking.Lock()
	defer t.asking.Unlock()
	_, err := t.stream.Write([]byte(request))
	Must(err)
	head, err := t.answer.ReadString('\n')
	Must(err)
	if head[0] != '$' || head[1] == '-' {
		return ""
	}
	value, err := t.answer.ReadString('\n')
	Must(err)
	return strings.TrimSpace(value)
}

func contend(locks []Lock, order Order, till *till, seconds float64) report {
	hold := time.Duration(order.number("hold", 0)) * time.Microsecond
	rest := time.Duration(order.number("rest", 0)) * time.Microsecond
	until := now() + int64(seconds*1e9)
	whole := all(locks, func(lock Lock, task int64) (part report) {
		part.Counts = []uint64{0}
		for now() < until {
			asked := now()
			give, err := lock.Take()
			Must(err)
			granted := now()
			if hold > 0 {
				time.Sleep(hold)
			}
			if till != nil {
				till.sell()
			}
			released := now()
			give()
			if rest > 0 {
				time.Sleep(rest)
			}
			if granted < until {
				part.Counts[0]++
				part.Turns = append(part.Turns, [4]int64{task, asked, granted, released})
			}
		}
		return part
	})
	whole.Seconds = seconds
	if till != nil {
		whole.Facts["sold"] = float64(till.sold.Load())
	}
	return whole
}

func all(locks []Lock, work func(lock Lock, task int64) report) report {
	parts := make([]report, len(locks))
	var running sync.WaitGroup
	for task, lock := range locks {
		running.Add(1)
		go func() {
			defer running.Done()
			parts[task] = work(lock, int64(task))
		}()
	}
	running.Wait()
	whole := report{Counts: []uint64{}, Nanos: []int64{}, Turns: [][4]int64{}, Facts: map[string]float64{}}
	for _, part := range parts {
		whole.Counts = append(whole.Counts, part.Counts...)
		whole.Nanos = append(whole.Nanos, part.Nanos...)
		whole.Turns = append(whole.Turns, part.Turns...)
	}
	return whole
}

// now is the clock that all processes of the machine share.
func now() int64 {
	var time unix.Timespec
	Must(unix.ClockGettime(unix.CLOCK_MONOTONIC, &time))
	return time.Nano()
}

// Must ends the program, in words, if there is an error.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}
