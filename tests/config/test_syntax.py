"""What is wrong with the text itself: each fault one line with its place."""

import pytest

NINES = "a0: &a0 [1,2,3,4,5,6,7,8,9]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10)
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"", "study.yaml:1:1: the file is empty"),
        ("- a\n", "study.yaml:1:1: expected keys with values (question: ...), got a list"),
        ("hello", "study.yaml:1:1: expected keys with values (question: ...), got text 'hello'"),
        ("question: q\nbase:\n\tmodel: {}\n", "study.yaml:3:1: a tab where YAML allows only spaces"),
        (b'question: q\nname: "\xff"\n', "study.yaml:2:8: not UTF-8"),
        ("question: a".encode("utf-16"), "study.yaml:1:1: not UTF-8"),
        ("question: a\x00b\n", "study.yaml:1:12: a control character"),
        ("question: q\n---\nquestion: r\n", "study.yaml:2:1: a second document"),
        ("question: a: b\n", "study.yaml:1:12: not YAML: mapping values are not allowed here"),
        ("question: q\nbase: [\n", "study.yaml:3:1: not YAML: "),
        ("question: *x\n", "study.yaml:1:11: not YAML: found undefined alias"),
        ("question: &a [*a]\n", "study.yaml:1:11: question: an alias that contains itself"),
        ("base: &a {model: *a}\n", "study.yaml:1:7: model: an alias that contains itself"),
        (NINES, "study.yaml:1:10: more than 250,000 values, aliases expanded"),
        ("question: " + "[" * 50 + "]" * 50, "study.yaml:1:31: nested too deeply"),
        ("question: " + "[" * 5000 + "]" * 5000, "study.yaml: nested too deeply"),
        (b"question: q\n" + b"#" * 4_000_001, "study.yaml: 4,000,013 bytes, more than the 4,000,000"),
        ("question: q\nbase: {<<: {model: {}}}\n", "study.yaml:2:8: base: merge keys (<<) are not part of YAML 1.2"),
        ("question: !!python/object:os.system q\n", "study.yaml:1:11: question: the tag !!python/object:os.system"),
        ('question: q\nseeds: [!!int "3"]\n', "study.yaml:2:9: seeds: the tag !!int is not read here"),
        ("question: q\n3: a\n", "study.yaml:2:1: the file: the number 3 as a key, expected text: put it in quotes"),
        ("question: q\n[a]: c\n", "study.yaml:2:1: the file: a list or mapping as a key"),
        ('question: "\\ud800"\n', "study.yaml:1:11: question: text that is not valid Unicode"),
        (
            "question: q\nbase: {optim: {lr: 017}}\n",
            "study.yaml:2:20: optim.lr: a number with a leading zero, 017: write 17",
        ),
    ],
)
def test_one_line_with_the_place(problems, text, line):
    (problem,) = problems(text)
    assert problem.startswith(line)


def test_duplicate_keys_name_both_lines(problems):
    lines = problems("question: a\nbase:\n  optim:\n    lr: 1e-3\n    eps: 1e-8\n    lr: 1e-2\nquestion: b\n")
    assert lines == [
        "study.yaml:6:5: optim.lr: given twice, on line 4 and on line 6",
        "study.yaml:7:1: question: given twice, on line 1 and on line 7",
    ]


def test_aliases_and_a_byte_order_mark_work(load):
    study = load("\ufeffquestion: q\nbase: {optim: &o {lr: 1e-2}}\naxes: {variant: {a: {}, b: {optim.lr: &r 1e-1}}}\n")
    assert study.base.optim.lr == 1e-2
    assert load("question: &q what\nname: *q\n").name == "what"


def test_files_that_are_none(write, tmp_path):
    from normlab.config.errors import ConfigError
    from normlab.config.load import load_study

    write("question: q\n")
    for path, text in ((tmp_path, "is a directory"), (tmp_path / "none.yaml", "no such file")):
        with pytest.raises(ConfigError) as caught:
            load_study(path)
        assert caught.value.problems[0].startswith(f"{path}: {text}")
