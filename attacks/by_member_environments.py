"""A hostile member: it asks for folders, environments and setups of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attacks.negotiating import ran
from attacks.verdict import attack, must

if TYPE_CHECKING:
    from attacks.reef import Reef

LOOK = ["sh", "-c", "cat /data/*/prize"]


@attack("member", "a folder that is not lent to an owner is not there for it")
def mounting_folders_of_the_lender(reef: Reef) -> str:
    names = ("private", "../private", str(reef.folder / "private"), "lent/../private")
    seen = [
        ran(reef, 261 + n, LOOK, work={"mounts": [name]})
        for n, name in enumerate(names)
    ]
    must(not any(said == "exited: 0" for said in seen), f"it was mounted: {seen}")
    must("only lent" in seen[0], f"what is lent to others is told: {seen[0]}")
    open_ = ran(reef, 267, LOOK, work={"mounts": ["lent"]})
    must(open_ == "exited: 0", f"what is lent is not there: {open_}")
    spoilt = ["sh", "-c", "rm /data/lent/prize || echo x > /data/lent/prize"]
    ran(reef, 268, spoilt, work={"mounts": ["lent"]})
    must((reef.folder / "lent" / "prize").read_text() == reef.prize, "it was changed")
    return seen[0]


@attack("member", "an environment is made with the network that is lent, or not at all")
def building_where_no_network_is_lent(reef: Reef) -> str:
    evil = {"python": {"packages": ["x @ http://127.0.0.1/x.tar.gz"]}}
    seen = ran(reef, 271, ["true"], work=evil)
    must(seen.startswith("refused"), f"something was built: {seen}")
    return seen


@attack("member", "a setup is confined as its task is, and so is what it leaves")
def a_setup_that_leaves_links_to_climb_out_by(reef: Reef) -> str:
    mark = reef.mark()
    links = f"touch {mark}; ln -s / root; ln -s /etc/passwd file; mkfifo pipe"
    work = {
        "setup": ["sh", "-c", links],
        "outputs": ["root/etc/*", "file", "pipe"],
        "workdir": "",
    }
    seen = ran(reef, 272, ["sh", "-c", f"touch root{mark}; true"], work=work)
    must(not mark.exists(), "a setup or its task wrote outside of its sandbox")
    return f"{seen}; {reef.serves()}"


@attack("member", "one owner never sees what another has cached")
def poisoning_the_cache_of_another(reef: Reef) -> str:
    put = ["sh", "-c", "echo evil > $HF_HOME/poison && ls $HF_HOME"]
    seen = ran(reef, 273, put, work={"caches": ["huggingface"]})
    must(seen == "exited: 0", f"there is no cache: {seen}")
    for name in ("../x", "/etc", "nothing"):
        ran(reef, 274, ["true"], work={"caches": [name]})
    look = ("--keep-cache", "huggingface", "--", "sh", "-c", "ls -A $HF_HOME; echo end")
    found = reef.lender.ok("run", "-q", *look)
    must(found.split() == ["end"], f"the lender's job found {found!r}")
    return f"{seen}; the lender's own cache is empty"
