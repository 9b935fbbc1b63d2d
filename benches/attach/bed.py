"""A server's and a client's network namespace with a cable between them, and nginx in the first."""
import ctypes, itertools, json, os, pathlib, re, subprocess, sys, tempfile

DEVICE = "va"
REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
CLONE_NEWNET = 0x40000000


def run(*command):
    """Runs a command, and returns its output."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def add_arguments(parser):
    parser.add_argument("--serpent", default=REPOSITORY / "target/release/serpent", help="the program to measure")


class Bed:
    """Made on entering, removed on leaving."""

    numbers = itertools.count()

    def __init__(self, serpent):
        if os.geteuid():
            sys.exit("network namespaces need root")
        self.serpent = pathlib.Path(serpent).resolve()
        if not self.serpent.exists():
            sys.exit(f"{self.serpent} is not there: `cargo build --release`, or give --serpent")
        number = next(self.numbers)
        self.server, self.client = (f"bench-{os.getpid()}-{number}-{side}" for side in "sc")
        self.folder = tempfile.TemporaryDirectory()
        self.files = pathlib.Path(self.folder.name)
        self.nginx = self.serving = None

    def __enter__(self):
        for namespace in (self.server, self.client):
            run("ip", "netns", "add", namespace)
        run(*f"ip link add {DEVICE} netns {self.server} type veth peer name vb netns {self.client}".split())
        for namespace, device, address in ((self.server, DEVICE, 1), (self.client, "vb", 2)):
            run(*f"ip -n {namespace} addr add 10.9.0.{address}/24 dev {device}".split())
            run(*f"ip -n {namespace} link set lo up".split())
            run(*f"ip -n {namespace} link set {device} up".split())
        return self

    def __exit__(self, *_):
        for process in (self.nginx, self.serving):
            if process:
                process.terminate()
                process.wait()
        for namespace in (self.server, self.client):
            subprocess.run(["ip", "netns", "del", namespace])
        self.folder.cleanup()

    def inside(self, *command):
        """Runs a command in the server's namespace."""
        return run("ip", "netns", "exec", self.server, *command)

    def plain_queue(self, rate, is_told=True):
        """A queue of 1000 packets at this rate, without an order. A server that finds its rate can read that rate, unless a
        filter decides which packets have it."""
        default = "default 1" if is_told else ""
        self.inside(*f"tc qdisc add dev {DEVICE} root handle 1: htb {default}".split())
        self.inside(*f"tc class add dev {DEVICE} parent 1: classid 1:1 htb rate {rate} burst 1600 cburst 1600".split())
        if not is_told:
            self.inside(*f"tc filter add dev {DEVICE} parent 1: u32 match u32 0 0 classid 1:1".split())
        self.inside(*f"tc qdisc add dev {DEVICE} parent 1:1 pfifo limit 1000".split())

    def attach(self, rate, ports="80"):
        self.inside(self.serpent, "attach", DEVICE, "--rate", rate, "--ports", ports, "--replace")

    def shown(self):
        return json.loads(self.inside(self.serpent, "attach", DEVICE, "--show", "--json"))

    def detach(self):
        self.inside(self.serpent, "detach", DEVICE)

    def program(self):
        """The number of the classifier."""
        return re.search(r" id (\d+)", self.inside("tc", "filter", "show", "dev", DEVICE, "parent", "5e7:")).group(1)

    def start_nginx(self):
        here = self.files
        paths = "".join(f"{of}_temp_path {here}/tmp; " for of in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (here / "nginx.conf").write_text(
            f"daemon off; master_process off; pid {here}/pid; error_log stderr crit;\n"
            f"events {{ worker_connections 4096; }}\n"
            f"http {{ access_log off; sendfile on; {paths}\n"
            f"server {{ listen 80 backlog=4096; root {here}; }} }}\n")
        command = ["ip", "netns", "exec", self.server, "nginx", "-e", "stderr", "-p", here, "-c", here / "nginx.conf"]
        self.nginx = subprocess.Popen([str(word) for word in command], env=os.environ | {
            "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"})

    def start_serpent(self, port):
        """Starts `serpent serve --enforce kernel`, for which the device must be attached."""
        (self.files / "serpent.toml").write_text("[limits]\nconnections = 65536\n")
        command = ["ip", "netns", "exec", self.server, self.serpent, "serve", self.files, "--config", self.files / "serpent.toml",
                   "--listen", f"10.9.0.1:{port}", "--enforce", "kernel", "--device", DEVICE]
        self.serving = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE)
        if not self.serving.stdout.readline():
            sys.exit("serpent does not start")

    def enter_client(self):
        """Moves this process into the client's namespace."""
        with open(f"/run/netns/{self.client}") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
                sys.exit(f"setns: {os.strerror(ctypes.get_errno())}")

    def tcp_counters(self, namespace):
        """Counters of TCP by name."""
        counters = {}
        for file in ("snmp", "netstat"):
            lines = run("ip", "netns", "exec", namespace, "cat", f"/proc/net/{file}").splitlines()
            for names, values in zip(lines[::2], lines[1::2]):
                if names.startswith("Tcp"):
                    counters |= dict(zip(names.split()[1:], map(int, values.split()[1:])))
        return counters
