"""Clients on another machine: TLS, a token or a certificate, and roles of grants."""

import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest
from tests.integration.cli_home import CliHome
from tests.integration.far_node import PORT, Far, far_node, refused

from shoal.api import shoal_pb2 as pb
from shoal.api.server.tokens import print_of
from shoal.net.identity.identity import Identity
from shoal.runtime.home import Home
from shoal.runtime.membership import shoal_membership

pytestmark = pytest.mark.integration

DONE = pb.STATE_DONE


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    with far_node(tmp_path_factory.mktemp("far")) as found:
        yield found


def test_a_member_that_may_submit_submits_and_looks_and_no_more(far: Far) -> None:
    ann = far.member("ann", "submit")

    assert ann("run", "-q", "--", "echo", "far") == (0, "far\n", "")
    assert ann.json("ps")["total"] >= 1
    refused(ann("invite"), "shoal invite --role admin")
    refused(ann("revoke", "nobody"), "its roles are scheduler")


def test_a_worker_may_look_at_nodes_and_not_submit(far: Far) -> None:
    bob = far.member("bob", "worker")

    assert bob.json("nodes")["nodes"]
    refused(bob("submit", "--", "true"), "shoal invite --role submit")
    refused(bob("ps"), "its roles are worker")


def test_an_admin_invites_and_revokes_from_afar(far: Far) -> None:
    boss, carl = far.member("boss", "admin"), far.member("carl", "submit")
    carls = Identity.load(Home(carl.path).key).node
    carl.ok("ps")

    assert boss("invite").code == 0
    boss.ok("revoke", carls)

    refused(carl("ps"), "revoked")


def test_only_an_admin_uses_secrets_of_the_node_from_afar(far: Far) -> None:
    dora, chief = far.member("dora", "submit"), far.chief()
    chief("secret", "set", "DEEP", typed="water")

    told = chief("run", "-q", "--secret", "DEEP", "--", "sh", "-c", "echo ${#DEEP}")
    refusal = dora("submit", "--secret", "DEEP", "--", "true")

    assert told == (0, "5\n", "")
    refused(refusal, "may not use the secrets")


def test_a_grant_that_has_expired_opens_nothing(far: Far) -> None:
    late = far.member("late", "submit", expires_s=-5.0)

    refused(late("ps"), "grant expired")


def test_idle_strangers_do_not_lock_members_out(far: Far) -> None:
    bea = far.member("bea", "submit", owner="bea")
    host, _, port = far.address.partition(":")
    crowd = f"""
        import socket
        crowd = [socket.create_connection(("{host}", {port})) for _ in range(300)]
        print(len(crowd), flush=True)
        input()
    """
    command = [*far.there, sys.executable, "-c", textwrap.dedent(crowd)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as strangers:
        assert strangers.stdout is not None
        strangers.stdout.readline()

        taken = far.python(
            bea,
            """
            import time
            for _ in range(4):
                began = time.monotonic()
                with connect(client._target) as another:
                    another.jobs()
                print(time.monotonic() - began)
            """,
        )
        strangers.communicate("\n")

    assert min(map(float, taken)) < 1.0


def test_a_token_is_as_good_as_being_the_user(far: Far) -> None:
    eve = far.stranger("eve")
    eve.env["SHOAL_TOKEN"] = far.token

    assert eve("run", "-q", "--", "echo", "by token") == (0, "by token\n", "")
    assert eve("invite").code == 0


def test_a_wrong_token_is_refused_by_the_node(far: Far) -> None:
    eve = far.stranger("wrong")
    pin = far.token.partition(".")[2]
    eve.env["SHOAL_TOKEN"] = f"guessed.{pin}"

    refused(eve("ps"), "that is not its token")


def test_a_token_is_not_shown_to_another_node_than_its_own(far: Far) -> None:
    eve = far.stranger("misled")
    other = print_of(Identity.generate().node)
    eve.env["SHOAL_TOKEN"] = f"{far.token.partition('.')[0]}.{other}"

    refused(eve("ps"), "the token is for another node")


def test_whoever_can_tell_nothing_about_the_node_does_not_talk_to_it(far: Far) -> None:
    eve = far.stranger("nobody")

    refused(eve("ps"), "no token says who should answer")
    eve.env["SHOAL_TOKEN"] = far.token.partition(".")[0]
    refused(eve("ps"), "does not say whose it is")


def test_a_member_does_not_talk_to_the_node_of_another_shoal(far: Far) -> None:
    lost = far.stranger("lost")
    own = Home(lost.path)
    own.prepare()
    shoal_membership.found(own, Identity.load_or_create(own.key), "home")

    refused(lost("ps"), "no member of")


def test_a_port_without_tls_is_named(far: Far) -> None:
    ann = far.member("anna", "submit")
    host = far.address.partition(":")[0]
    server = (
        "import socket; s=socket.create_server(('0.0.0.0', 6000)); print(flush=True)"
    )
    here = far.server.prefix
    with subprocess.Popen(
        [*here, sys.executable, "-c", f"{server}; s.accept()[0].sendall(b'hello'*9)"],
        stdout=subprocess.PIPE,
    ) as plain:
        assert plain.stdout is not None
        plain.stdout.readline()

        refused(ann("ps", "--node", f"{host}:6000"), "no TLS 1.3 at", code=1)

    refused(ann("ps", "--node", f"{host}:6001"), "does not answer", code=105)


def test_a_worker_of_another_machine_joins_with_the_token(far: Far) -> None:
    fay = far.stranger("fay")
    without = fay("worker", "--scheduler", far.address)
    refused(without, "pass the output of `shoal token show` there")

    fay.env["SHOAL_TOKEN"] = far.token
    with fay.start("worker", "--scheduler", far.address) as node:
        assert node.stderr is not None
        said = [node.stderr.readline() for _ in range(2)]
        node.terminate()

    assert 'joined "home"' in said[0]
    assert said[1].startswith("  node  ")


def test_a_generated_client_works_with_a_token_or_a_certificate(far: Far) -> None:
    trusted = far.server.path / "api.crt"
    gus = far.member("gus", "submit")
    own = Home(gus.path)
    # A node that has run once leaves these for programs.
    gus.up("--no-sandbox", "--port", "0")
    gus.close()

    by_token = far.generated(trusted=trusted, token=far.token)
    by_key = far.generated(trusted=trusted, key=own.key, shown=own.path / "node.crt")

    pid = far.server.info["pid"]
    assert by_token == {"pid": pid, "state": DONE}, by_token
    assert by_key == {"pid": pid, "state": DONE}, by_key


def test_a_generated_client_is_refused_without_either(far: Far) -> None:
    trusted = far.server.path / "api.crt"

    nothing = far.generated(trusted=trusted)
    wrong = far.generated(trusted=trusted, token="wrong")

    assert nothing["code"] == "PERMISSION_DENIED"
    assert "certificate of a member" in nothing["details"]
    assert wrong["code"] == "PERMISSION_DENIED"
    assert "not its token" in wrong["details"]


def test_a_generated_client_does_not_trust_another_certificate(far: Far) -> None:
    other = far.stranger("other")
    other.up("--no-sandbox", "--port", "0", "--api", "0.0.0.0:0")
    other.close()

    done = far.generated(trusted=other.path / "api.crt", token=far.token)

    assert done["code"] == "UNAVAILABLE"


def test_one_port_serves_this_machine_in_plain_text_and_others_by_tls(far: Far) -> None:
    both = far.stranger("both")
    del both.env["SHOAL_NODE"]
    args = ("--port", str(PORT), "--api", f"0.0.0.0:{PORT}")
    both.up("--no-sandbox", *args)
    try:
        near = both("ps", "--node", f"localhost:{PORT}")
        host = CliHome(far.folder / "visitor", far.server.prefix)
        host.env["SHOAL_TOKEN"] = (both.path / "api.token").read_text().strip()
        far_off = host("ps", "--node", f"203.0.113.11:{PORT}")
    finally:
        both.close()

    assert near.code == 0, near
    assert far_off.code == 0, far_off


def test_plain_text_from_another_machine_is_refused_with_the_reason(far: Far) -> None:
    done = far.generated(trusted="plain", token=far.token)

    assert done["code"] == "UNAVAILABLE", done
    assert "400" in done["details"]


def test_tls_1_2_is_refused(far: Far) -> None:
    host, _, port = far.address.partition(":")
    old = f"""
        import socket, ssl
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.wrap_socket(socket.create_connection(("{host}", {port})))
        except ssl.SSLError as error:
            print(error.reason)
    """
    done = subprocess.run(
        [*far.there, sys.executable, "-c", textwrap.dedent(old)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "PROTOCOL_VERSION" in done.stdout


def test_on_its_own_machine_the_same_node_is_called_as_ever(far: Far) -> None:
    done = far.server("ps", "--node", far.server.info["api"], "--json")

    assert done.code == 0, done
