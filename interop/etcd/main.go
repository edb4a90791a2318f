// A program with etcd's own Go client in it, which the tests drive: locks of the package concurrency and the read-write lock of the recipes.
//
//	driver ENDPOINT hold  NAME MILLIS          acquires the mutex, prints "held", keeps it so long, releases
//	driver ENDPOINT note  NAME FILE TEXT       acquires the mutex, appends the text to the file, releases
//	driver ENDPOINT note-write NAME FILE TEXT  the same with the write side of a RWMutex
//	driver ENDPOINT count NAME FILE ROUNDS     acquires the mutex so often and adds one to the number in the file each time
//	driver ENDPOINT read|write NAME FILE ROUNDS  the same with one side of a RWMutex; a reader only looks
//
// Each addition is printed as "value N" before the release, so that a program that is killed has told what it wrote. A reader prints what it saw.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(file string) int {
	text, err := os.ReadFile(file)
	must(err)
	value, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(err)
	return value
}

// add is not atomic on purpose: two at a time lose an update. The file itself is replaced at once, so that a kill leaves the old number or the new one.
func add(file string) {
	value := number(file)
	time.Sleep(time.Millisecond)
	own := fmt.Sprintf("%s.%d", file, os.Getpid())
	must(os.WriteFile(own, []byte(strconv.Itoa(value+1)), 0o600))
	must(os.Rename(own, file))
	fmt.Println("value", value+1)
}

func note(file string, more string) {
	text, err := os.ReadFile(file)
	must(err)
	must(os.WriteFile(file, append(text, more...), 0o600))
}

func main() {
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "usage: driver ENDPOINT hold|note|note-write|count|read|write NAME ...")
		os.Exit(2)
	}
	endpoint, verb, name := os.Args[1], os.Args[2], os.Args[3]
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second})
	must(err)
	defer client.Close()
	session, err := concurrency.NewSession(client, concurrency.WithTTL(2))
	must(err)
	defer session.Close()
	background := context.Background()
	switch verb {
	case "hold":
		millis, err := strconv.Atoi(os.Args[4])
		must(err)
		mutex := concurrency.NewMutex(session, name)
		must(mutex.Lock(background))
		fmt.Println("held", mutex.Key())
		time.Sleep(time.Duration(millis) * time.Millisecond)
		must(mutex.Unlock(background))
		fmt.Println("released")
	case "note":
		mutex := concurrency.NewMutex(session, name)
		must(mutex.Lock(background))
		note(os.Args[4], os.Args[5])
		must(mutex.Unlock(background))
	case "note-write":
		mutex := recipe.NewRWMutex(session, name)
		must(mutex.Lock())
		note(os.Args[4], os.Args[5])
		must(mutex.Unlock())
	case "count":
		rounds, err := strconv.Atoi(os.Args[5])
		must(err)
		for i := 0; i < rounds; i++ {
			mutex := concurrency.NewMutex(session, name)
			must(mutex.Lock(background))
			add(os.Args[4])
			must(mutex.Unlock(background))
		}
	case "read", "write":
		rounds, err := strconv.Atoi(os.Args[5])
		must(err)
		for i := 0; i < rounds; i++ {
			mutex := recipe.NewRWMutex(session, name)
			if verb == "read" {
				must(mutex.RLock())
				before := number(os.Args[4])
				time.Sleep(time.Millisecond)
				if number(os.Args[4]) != before {
					fmt.Println("a writer wrote beside a reader")
					os.Exit(3)
				}
				fmt.Println("value", before)
				must(mutex.RUnlock())
			} else {
				must(mutex.Lock())
				add(os.Args[4])
				must(mutex.Unlock())
			}
		}
	default:
		os.Exit(2)
	}
}
