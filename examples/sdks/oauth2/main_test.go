package main

func Example() {
	main()
	// Output:
	// ann: 429 Too Many Requests, after 0s
	// ann: not sent, because the server said so before
	// bob: 200 OK, after 0s
}
